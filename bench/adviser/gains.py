"""What advise gains from `round_robin`, and whether it abstains: `python -m bench.adviser.gains --json OUT`.

Setting: five seeds of the generated workload `conversation_like` (1,200 requests at 3.4 a second), 4 engines of the
reference model, the other settings those of a new pool. A search has at most 110 runs of a window and 120 CPU seconds.

From `round_robin` with `fifo`: a seed counts if there is a proposal, its change of the mean TTFT in held-out windows
lies in its range, and its gain there (the relative reduction of the mean TTFT) is at least 70 % of the best known
policy's gain there. The known policies are every live placement with the order `late_last` (`central` with
`late_binding`) and, for `least_cost` and `dual_map`, `slack`, with default parameters. The best has the largest gain in
these windows. Held-out windows are those that neither search nor prediction used.

From the best known policy: the live policy is the one with the largest utility in the windows for prediction among the
known policies and the proposal from `round_robin`. A seed counts if there is no proposal.

Claims: 4 of 5 seeds or more count, of each kind.
"""

from __future__ import annotations

import sys

import msgspec

from bench.report import Target, command_line, write_report
from planning.adviser.fleet_shape import FleetPolicy, FleetShape
from planning.adviser.prediction import TTFT_MEAN, Practical, WindowFigures, predicted_changes, utility
from planning.adviser.trace_windows import TraceWindow
from planning.adviser.verdict import Advice
from routing.policy.policy_document import RoutingPolicy, Stage
from routing.registry import stage_pairs
from simulator.adviser.advice_table import render_advice
from simulator.adviser.evaluation import Evaluator
from simulator.adviser.search import AdvicePlan, advise
from simulator.runs.run_task import RunTask
from simulator.runs.simulation_run import RunSpec

ENGINES, ROWS, QPS, SEEDS = 4, 1_200, 3.4, 5
BUDGET_S, LEAST_SHARE, LEAST_SEEDS = 120.0, 0.7, 4
WITH_SLACK = (("least_cost", "slack"), ("dual_map", "slack"))
FLEET = FleetShape(ENGINES)
LIVE = RoutingPolicy(placement=Stage(name="round_robin"), order=Stage(name="fifo"))
PRACTICAL = Practical()


class SeedGain(msgspec.Struct, frozen=True):
    """One seed from `round_robin`. Gains are relative reductions of the mean TTFT in the held-out windows."""

    gain: float
    best_gain: float
    within: bool
    abstains_at_best: bool

    @property
    def counts(self) -> bool:
        """Whether the seed supports the first claim."""
        return self.within and self.gain >= LEAST_SHARE * self.best_gain


def source_of(policy: RoutingPolicy, seed: int) -> RunTask:
    """Return the seed's traffic under this policy."""
    return RunTask(
        trace="conversation_like",
        settings={"qps": QPS},
        requests=ROWS,
        max_input=None,
        goodput=False,
        spec=RunSpec(policy=policy, engines=ENGINES, seed=seed),
    )


def advice_for(policy: RoutingPolicy, seed: int, runs: int) -> Advice:
    """Search for a better policy than this one."""
    advice = advise(
        AdvicePlan(source=source_of(policy, seed), budget_s=BUDGET_S, runs=runs, jobs=1, practical=PRACTICAL)
    )
    print(f"== seed {seed}, from {policy.placement.name}\n{render_advice(advice)}", file=sys.stderr)
    return advice


def known_policies() -> list[RoutingPolicy]:
    """Return the known policies, with default parameters."""
    return [
        RoutingPolicy(placement=Stage(name=placement), order=Stage(name=order))
        for placement, order in stage_pairs()
        if order in ("late_last", "late_binding") or (placement, order) in WITH_SLACK
    ]


def runs_of(policies: list[RoutingPolicy], windows: tuple[TraceWindow, ...], seed: int) -> list[list[WindowFigures]]:
    """Run the policies on these windows."""
    with Evaluator(source_of(LIVE, seed), 1.0, 1, float("inf")) as evaluator:
        return evaluator.figures([FleetPolicy(policy, FLEET) for policy in policies], windows, (seed,))


def ttft_gain(live: list[WindowFigures], tried: list[WindowFigures]) -> float:
    """Return the relative reduction of the mean TTFT, over windows as the adviser averages them."""
    changes = predicted_changes((live, tried), (live, tried), 1)
    return -next(item.measured for item in changes if item.objective.name == TTFT_MEAN)


def of_seed(seed: int, runs: int) -> SeedGain:
    """Search from `round_robin`, and from the best known policy."""
    advice = advice_for(LIVE, seed, runs)
    live, *known = runs_of([LIVE, *known_policies()], advice.windows.check, seed)
    best_gain = max(ttft_gain(live, runs) for runs in known)
    gain, within, candidates = 0.0, False, known_policies()
    if advice.proposal is not None:
        change = next(item for item in advice.proposal.changes if item.objective.name == TTFT_MEAN)
        gain, within = -change.measured, change.low <= change.measured <= change.high
        candidates.append(advice.proposal.policy)
    live, *results = runs_of([LIVE, *candidates], advice.windows.predict, seed)
    best = max(zip(candidates, results, strict=True), key=lambda pair: utility(live, pair[1], PRACTICAL))[0]
    return SeedGain(gain, best_gain, within, advice_for(best, seed, runs).proposal is None)


def main() -> None:
    """Measure all seeds and write the report."""
    parser = command_line("adviser_gains", __doc__)
    parser.add_argument("--runs", type=int, default=110)
    options = parser.parse_args()
    seeds = [of_seed(seed, options.runs) for seed in range(1, SEEDS + 1)]
    figures: dict[str, float] = {"runs": options.runs}
    for number, item in enumerate(seeds, 1):
        figures[f"seed_{number}_ttft_gain"] = round(item.gain, 4)
        figures[f"seed_{number}_best_known_gain"] = round(item.best_gain, 4)
        figures[f"seed_{number}_within_range"] = item.within
        figures[f"seed_{number}_abstains_at_best"] = item.abstains_at_best
    targets = {
        "seeds_with_gain": Target(value=sum(item.counts for item in seeds), op=">=", target=LEAST_SEEDS),
        "seeds_that_abstain": Target(value=sum(item.abstains_at_best for item in seeds), op=">=", target=LEAST_SEEDS),
    }
    write_report("adviser_gains", figures, targets, options.json)


if __name__ == "__main__":
    main()
