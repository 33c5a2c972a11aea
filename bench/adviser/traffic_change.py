"""Whether a planted change of traffic is noticed: `python -m bench.adviser.traffic_change --json OUT`.

Setting: the conversation trace up to a moment, from there on toolagent_like, at its own rate or thinned to that of the
conversation trace. Moments: 40, 50, and 60 % of the hour. A change is noticed if it starts within one window of the
moment, and is confirmed by the end of the second window that has only new traffic.

Without a plant: both traces, and 20 days of bench.adviser.calibration. Every change there is a false alarm.

Claims: each planted change is noticed; at most one of the 22 traces without a plant has a change.

HEADWAY_TRACES names the folder of the traces.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from msgspec.structs import replace

from bench.adviser.calibration import DAYS, day
from bench.evidence.traces import whole_trace
from bench.report import Target, command_line, write_report
from planning.adviser.trace_windows import MOST_SLICES, WindowPlan, window_plan
from simulator.adviser.search import columns_of
from simulator.workloads.prepared_workload import Workload
from simulator.workloads.trace import TraceRow

CUTS = (0.4, 0.5, 0.6)
_OTHER_IDS = 1 << 50
"""Added to the block ids of the second trace, so that no prefix is known from the first."""


def planted(first: Sequence[TraceRow], second: Sequence[TraceRow], cut: float, *, same_rate: bool) -> list[TraceRow]:
    """Return the first trace up to the share `cut` of its time, then the second."""
    span_ms, rng = first[-1].timestamp, random.Random(7)
    keep = len(first) / len(second) if same_rate else 1.0
    later = [
        replace(row, hash_ids=tuple(block + _OTHER_IDS for block in row.hash_ids))
        for row in second
        if row.timestamp >= cut * span_ms and rng.random() < keep
    ]
    return [row for row in first if row.timestamp < cut * span_ms] + later


def planned(rows: Sequence[TraceRow]) -> WindowPlan:
    """Return the windows of these rows at the recorded rate."""
    return window_plan(columns_of(Workload(rows), None))


def noticed(plan: WindowPlan, rows: Sequence[TraceRow], at_s: float) -> bool:
    """Return whether the plan of these rows has the change at `at_s`, noticed within two windows."""
    window_s, change = rows[-1].timestamp / 1000 / MOST_SLICES, plan.change
    second_ends_s = (math.ceil(at_s / window_s) + 2.001) * window_s
    return change is not None and abs(change.at_s - at_s) <= window_s and change.noticed_s <= second_ends_s


def main() -> None:
    """Plan the windows of all traces and write the report."""
    options = command_line("adviser_traffic_change", __doc__).parse_args()
    first, second = whole_trace("conversation"), whole_trace("toolagent_like")
    span_s, figures = first[-1].timestamp / 1000, {}
    for cut in CUTS:
        for same_rate in (False, True):
            rows = planted(first, second, cut, same_rate=same_rate)
            key = f"noticed_at_{cut:.0%}{'_same_rate' if same_rate else ''}".replace("%", "")
            figures[key] = float(noticed(planned(rows), rows, cut * span_s))
    alarms = sum(planned(rows).change is not None for rows in (first, second, *(day(seed) for seed in range(DAYS))))
    targets = {
        "noticed": Target(value=sum(figures.values()), op=">=", target=len(figures)),
        "false_alarms": Target(value=alarms, op="<=", target=1),
    }
    write_report("adviser_traffic_change", figures, targets, options.json)


if __name__ == "__main__":
    main()
