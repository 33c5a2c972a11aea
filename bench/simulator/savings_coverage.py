"""Measure how often the ledger of savings covers the holdback: `python -m bench.simulator.savings_coverage --json OUT`.

Definition, written before the run. A day is 5,000 generated requests (`conversation_like` on even days,
`toolagent_like` on odd ones, each with its own seed) whose rate follows one period of a sine by ±30 %. Its mean rate
varies from day to day between 70 % and 100 % of 8 requests/s (conversation) or 18 requests/s (tool calls), on eight
simulated engines.

*Live*: the day runs once, whole, under the default policy of a new pool with a holdback of 10 % of the sessions on
`least_loaded`, on `chunked` engines of the true profile. This run gives the recorded requests, their mean TTFT, and
the measured figure: the late share of the holdback minus that of the live policy, over all requests after the first
500.

*Ledger*: the production code (`day_windows`, `replay_day`, `holdback_check`) gets the recorded requests, 15 CPU
seconds per day, and no other router, because the comparison needs none. It does not know the true engine: its guesses
are `chunked` and `colocated` engines whose prefill is 5 % too slow, the error of a cost that was learned. It draws
other sessions for the holdback than the live run.

A day is covered if the ledger's 90 % range contains the measured figure (HoldbackCheck.covered, as stored and shown).
The target is 16 of 20 days. Days without a comparison count as not covered. Beside it, and without a target: days
covered by the figure itself within 1 point, the median width of the ranges, and the days whose measured figure
differs from 0 by more than 1 point, where a range around 0 would be of no use.
"""

from __future__ import annotations

import math
import sys
import time
from statistics import fmean, median

from msgspec.structs import replace

from bench.report import Target, command_line, write_report
from planning.savings.day_savings import ArmRun, HoldbackCheck, holdback_check
from planning.savings.day_windows import day_windows
from routing.policy.policy_document import RoutingPolicy, Stage
from routing.trials.arms import CONTROL, ArmEntry
from simulator.engine_models.engine_profile import EngineProfile
from simulator.runs.run_report import on_time
from simulator.runs.simulation_run import RunSpec, run
from simulator.savings.day_replay import DayQuestion, EngineGuess, WindowTraffic, replay_day
from simulator.workloads.prepared_workload import Workload
from simulator.workloads.registry import generate_workload
from simulator.workloads.trace import TraceRow

DAYS, REQUESTS, UNCOUNTED, ENGINES = 20, 5_000, 500, 8
FULL_QPS = {"conversation_like": 8.0, "toolagent_like": 18.0}
BUDGET_S = 15.0
SHARE = 0.1
RULE = Stage(name="least_loaded")
LEARNED_ERROR = 1.05
NEAR = 0.01
POLICY = RoutingPolicy()


def day_rows(number: int) -> list[TraceRow]:
    """Return the requests of a day, with its rate."""
    kind = tuple(FULL_QPS)[number % 2]
    rows = generate_workload(kind, seed=1000 + number, rows=REQUESTS)
    qps = FULL_QPS[kind] * (0.7 + 0.3 * (number * 7 % DAYS) / (DAYS - 1))
    made, at_s = [], 0.0
    for index, row in enumerate(rows):
        made.append(replace(row, timestamp=at_s * 1000))
        at_s += 1 / (qps * (1 + 0.3 * math.sin(2 * math.pi * index / REQUESTS)))
    return made


def live_day(rows: list[TraceRow], number: int) -> tuple[ArmRun, list[float | None]]:
    """Return the measured arms, and each request's TTFT in seconds."""
    arm = ArmEntry(arm=CONTROL, trial_id=f"live-{number}", share=SHARE, placement=RULE)
    spec = RunSpec(policy=POLICY, engines=ENGINES, engine_model="chunked", seed=9000 + number, arms=(arm,))
    simulation = run(spec, Workload(rows))
    counted = simulation.history[UNCOUNTED:]
    met = [on_time(record, None, POLICY.ttft_slo_s) for record in counted]
    names = [simulation.router.arms.name_of(record.request) for record in counted]
    late = [name for name, good in zip(names, met, strict=True) if not good]
    control, control_late = names.count(CONTROL), late.count(CONTROL)
    measured = ArmRun(control, control_late, len(names) - control, len(late) - control_late)
    return measured, [record.ttft_s for record in simulation.history]


def checked_day(number: int) -> HoldbackCheck | None:
    """Run a day, and compare the ledger's replay with what the day measured."""
    rows = day_rows(number)
    measured, ttfts = live_day(rows, number)
    windows = []
    for window in day_windows([row.timestamp / 1000 for row in rows]):
        known = [item for item in ttfts[window.first + window.warmup : window.last] if item is not None]
        windows.append(
            WindowTraffic(
                window=window,
                rows=rows[window.first : window.last],
                version=1,
                engines=ENGINES,
                ttft_s=fmean(known) if known else None,
            )
        )
    true = EngineProfile()
    learned = replace(
        true,
        prefill_per_token_s=true.prefill_per_token_s * LEARNED_ERROR,
        prefill_per_token_squared_s=true.prefill_per_token_squared_s * LEARNED_ERROR,
    )
    question = DayQuestion(
        live={1: POLICY},
        earlier={},
        routers=(),
        engines=(EngineGuess("chunked", learned), EngineGuess("colocated", learned)),
        holdback=RULE,
        holdback_share=SHARE,
        budget_s=BUDGET_S,
    )
    return holdback_check(replay_day(question, windows).runs, RULE.name, measured)


def main() -> int:
    """Run the days, and write the result."""
    options = command_line("savings_coverage", __doc__).parse_args()
    began_s, checks = time.process_time(), []
    for number in range(DAYS):
        check = checked_day(number)
        print(f"day {number:2}: {check}", flush=True)
        if check is not None:
            checks.append(check)
    covered = sum(check.covered for check in checks)
    figures = {
        "days": DAYS,
        "days_with_comparison": len(checks),
        "days_covered": covered,
        "days_within_1_pt": sum(abs(check.replayed.mid - check.measured) <= NEAR for check in checks),
        "days_that_differ_by_1_pt": sum(abs(check.measured) > NEAR for check in checks),
        "median_range_width": round(median(check.replayed.high - check.replayed.low for check in checks), 4),
        "cpu_s": round(time.process_time() - began_s, 1),
    }
    targets = {"days_covered": Target(value=covered, op=">=", target=16)}
    return 0 if write_report("savings_coverage", figures, targets, options.json) else 1


if __name__ == "__main__":
    sys.exit(main())
