"""Coverage of the adviser's ranges over simulated days: `python -m bench.adviser.calibration --json OUT`.

Setting: 20 days, each a seed of the generated workload `conversation_like` (1,200 requests at a mean of 3.4 a second,
compressed into one such "day") whose rate follows a sine between 0.6 and 1.4 times its mean. 4 engines of the reference
model. The live policy is `round_robin` with `fifo`; the candidates are `least_cost` with `late_last`, `dual_map` with
`slack`, and `central` with `late_binding`, the other settings those of a new pool.

A prediction is the range of one objective's change for one candidate and day, computed as by advise from its windows
for prediction with two seeds. It is covered if the change in the windows for checking, which are others, lies in the
range. Objectives without variation between windows are not counted: their ranges have no width.

Claims: there are at least 400 predictions, and between 85 and 95 % are covered (the ranges state 90 %).
"""

from __future__ import annotations

import math
import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec.structs import replace

from bench.adviser.gains import ENGINES, FLEET, LIVE, QPS
from bench.report import Target, command_line, write_report
from planning.adviser.fleet_shape import FleetPolicy
from planning.adviser.prediction import PredictedChange, predicted_changes
from planning.adviser.trace_windows import WindowPlan
from routing.policy.policy_document import RoutingPolicy, Stage
from simulator.adviser.evaluation import Evaluator
from simulator.adviser.search import SEEDS, trace_windows
from simulator.runs.run_task import RunTask
from simulator.runs.simulation_run import RunSpec
from simulator.workloads.conversation_like import WorkloadShape, generate
from simulator.workloads.trace import TraceRow, write_trace

DAYS, ROWS, SWING = 20, 1_200, 0.4
CANDIDATES = (("least_cost", "late_last"), ("dual_map", "slack"), ("central", "late_binding"))
LEAST_PREDICTIONS, LEAST_COVERAGE, MOST_COVERAGE = 400, 0.85, 0.95


def day(seed: int, rows: int = ROWS) -> list[TraceRow]:
    """Return a day of traffic: requests at a mean of QPS, the rate on a sine over the day."""
    steady = generate(rows, seed, WorkloadShape(qps=QPS))
    span_ms = steady[-1].timestamp
    return [replace(row, timestamp=_warped(row.timestamp / span_ms) * span_ms) for row in steady]


def _warped(share: float) -> float:
    """Return the time of the day, 0..1, by which this share of its requests has arrived."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        # The integral of 1 + SWING·sin(2πx).
        arrived = middle + SWING * (1 - math.cos(2 * math.pi * middle)) / (2 * math.pi)
        low, high = (middle, high) if arrived < share else (low, middle)
    return low


def predictions(source: RunTask, windows: WindowPlan) -> list[tuple[PredictedChange, ...]]:
    """Return each candidate's predicted changes with what was measured."""
    seeds = tuple(range(source.spec.seed, source.spec.seed + SEEDS))
    policies = [LIVE, *(RoutingPolicy(placement=Stage(name=one), order=Stage(name=other)) for one, other in CANDIDATES)]
    tried = [FleetPolicy(policy, FLEET) for policy in policies]
    with Evaluator(source, 1.0, os.cpu_count() or 1, math.inf) as evaluator:
        before, *after = evaluator.figures(tried, windows.predict, seeds)
        came, *since = evaluator.figures(tried, windows.check, seeds)
    return [predicted_changes((before, one), (came, other), SEEDS) for one, other in zip(after, since, strict=True)]


def varies(item: PredictedChange) -> bool:
    """Return whether the range has a width."""
    return item.high - item.low > 1e-9


def figures_of(changes: Sequence[PredictedChange]) -> dict[str, float]:
    """Return the number of predictions and the share that is covered, in total and by objective."""
    held: defaultdict[str, list[bool]] = defaultdict(list)
    for item in changes:
        if varies(item):
            held[item.objective.name].append(item.low <= item.measured <= item.high)
    every = [covered for values in held.values() for covered in values]
    figures: dict[str, float] = {"predictions": len(every), "coverage": round(sum(every) / len(every), 4)}
    for name, values in held.items():
        figures[f"coverage_{name}"] = round(sum(values) / len(values), 4)
    return figures


def main() -> None:
    """Predict and measure all days, and write the report."""
    parser = command_line("adviser_calibration", __doc__)
    parser.add_argument("--days", type=int, default=DAYS)
    options = parser.parse_args()
    changes: list[PredictedChange] = []
    with TemporaryDirectory() as folder:
        for seed in range(1, options.days + 1):
            path = Path(folder) / f"day-{seed}.jsonl"
            write_trace(path, day(seed))
            spec = RunSpec(policy=LIVE, engines=ENGINES, seed=seed)
            source = RunTask(trace=str(path), requests=None, max_input=None, goodput=False, spec=spec)
            changes += [item for made in predictions(source, trace_windows(source)[0]) for item in made]
            print(f"day {seed}: {figures_of(changes)}", file=sys.stderr)
    figures = figures_of(changes)
    targets = {
        "predictions": Target(value=figures["predictions"], op=">=", target=LEAST_PREDICTIONS),
        "coverage_at_least": Target(value=figures["coverage"], op=">=", target=LEAST_COVERAGE),
        "coverage_at_most": Target(value=figures["coverage"], op="<=", target=MOST_COVERAGE),
    }
    write_report("adviser_calibration", figures, targets, options.json)


if __name__ == "__main__":
    main()
