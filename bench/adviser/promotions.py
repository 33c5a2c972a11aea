"""Promotions that a holdback contradicts: `python -m bench.adviser.promotions --json OUT`.

Setting, written before the run: the 20 days of bench.simulator.savings_coverage (5,000 requests each, conversations and
tool calls in turn, eight `chunked` engines of the true profile), and for each the day of the same kind 20 days later.
The live policy of the first day is `round_robin` with `fifo`, beside a holdback of 10 % of the sessions on
`least_loaded`. The adviser searches the first day's traffic with the true engine model, at most 120 runs, and 60 CPU
seconds. A proposal is promoted as by the autopilot's mode `promote`, and serves the later day beside the same holdback.

A promotion is contradicted if the production rule says so at the end of the later day, with the smallest gain of a new
pool. It is better if the policy's lead over the holdback grew.

Claims: there are at least 15 promotions, none of them contradicted.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench.report import Target, command_line, write_report
from bench.simulator.savings_coverage import DAYS, ENGINES, RULE, SHARE, UNCOUNTED, day_rows
from planning.adviser.autopilot import HoldbackCounts, contradiction, lead_change
from planning.adviser.prediction import Practical
from routing.policy.policy_document import RoutingPolicy, Stage
from routing.trials.arms import CONTROL, ArmEntry
from simulator.adviser.search import AdvicePlan, advise
from simulator.runs.run_report import on_time
from simulator.runs.run_task import RunTask
from simulator.runs.simulation_run import RunSpec, run
from simulator.workloads.prepared_workload import Workload
from simulator.workloads.trace import TraceRow, write_trace

RUNS, BUDGET_S, LEAST_PROMOTIONS = 120, 60.0, 15
LIVE = RoutingPolicy(placement=Stage(name="round_robin"), order=Stage(name="fifo"))
PRACTICAL = Practical()


def spec_of(policy: RoutingPolicy, seed: int, arms: tuple[ArmEntry, ...] = ()) -> RunSpec:
    """Return a run of this policy on the fleet."""
    return RunSpec(policy=policy, engines=ENGINES, engine_model="chunked", seed=seed, arms=arms)


def served(policy: RoutingPolicy, rows: list[TraceRow], seed: int) -> HoldbackCounts:
    """Serve a day beside the holdback, and return its counts."""
    arm = ArmEntry(arm=CONTROL, trial_id=f"holdback-{seed}", share=SHARE, placement=RULE)
    simulation = run(spec_of(policy, seed, (arm,)), Workload(rows))
    late = {True: 0, False: 0}
    requests = {True: 0, False: 0}
    for record in simulation.history[UNCOUNTED:]:
        is_control = simulation.router.arms.name_of(record.request) == CONTROL
        requests[is_control] += 1
        late[is_control] += not on_time(record, None, policy.ttft_slo_s)
    return HoldbackCounts(requests[False], late[False], requests[True], late[True])


def promoted(number: int) -> tuple[str, float] | None:
    """Return the contradiction of the day's promotion and the change of the lead; None without a promotion."""
    rows, later = day_rows(number), day_rows(number + DAYS)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "day.jsonl"
        write_trace(path, rows)
        source = RunTask(trace=str(path), requests=None, max_input=None, goodput=False, spec=spec_of(LIVE, number))
        proposal = advise(AdvicePlan(source=source, budget_s=BUDGET_S, runs=RUNS, jobs=1, practical=PRACTICAL)).proposal
    if proposal is None:
        return None
    before, after = served(LIVE, rows, 9000 + number), served(proposal.policy, later, 9500 + number)
    return contradiction(before, after, PRACTICAL.share), lead_change(before, after) or 0.0


def main() -> int:
    """Run the days, and write the result."""
    options = command_line("adviser_promotions", __doc__).parse_args()
    outcomes = []
    for number in range(DAYS):
        outcome = promoted(number)
        print(f"day {number:2}: {outcome}", file=sys.stderr, flush=True)
        if outcome is not None:
            outcomes.append(outcome)
    contradicted = sum(bool(why) for why, _ in outcomes)
    figures = {
        "days": DAYS,
        "promotions": len(outcomes),
        "contradicted": contradicted,
        "better": sum(change > 0 for _, change in outcomes),
        "median_lead_change": round(median([change for _, change in outcomes] or [0.0]), 4),
    }
    targets = {
        "promotions": Target(value=len(outcomes), op=">=", target=LEAST_PROMOTIONS),
        "contradicted": Target(value=contradicted, op="<=", target=0),
    }
    return 0 if write_report("adviser_promotions", figures, targets, options.json) else 1


if __name__ == "__main__":
    sys.exit(main())
