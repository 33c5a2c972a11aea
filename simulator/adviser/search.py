"""The search: candidates by successive halving, then the best on all the traffic, then the prediction from windows.

The halving never sees the windows of the prediction. The live policy runs on the same traffic with the same seeds, so
that only the policies differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

import msgspec

from planning.adviser.fleet_shape import ENGINES, PREFILL, FleetPolicy, FleetRange, FleetShape
from planning.adviser.halving import FINALISTS, Rung, rungs
from planning.adviser.prediction import (
    ON_TIME,
    ON_TIME_TOKENS,
    Practical,
    WindowFigures,
    predicted_changes,
    utility,
    worse_groups,
)
from planning.adviser.search_space import Point, point_of, policy_at, search_space, starting_points
from planning.adviser.trace_windows import TraceColumns, TraceWindow, WindowPlan, window_plan
from planning.adviser.verdict import Advice, PolicyCandidate, costs_of, objections
from routing.policy.policy_document import RoutingPolicy, Stage
from simulator.adviser.evaluation import BudgetSpentError, Evaluator
from simulator.adviser.policy_sampler import PolicySampler
from simulator.runs.run_task import RunTask, workload_of
from simulator.workloads.arrivals import scaled_times
from simulator.workloads.prepared_workload import Workload

BATCH = 8
"""Candidates suggested at once. Constant, so that the search does not depend on the number of processes."""
SEEDS = 2
FIRST_RUNG_SHARE = 0.45
SEARCH_SHARE = 0.6
WHOLE_SHARE = 0.75
"""Shares of the budget up to the end of the first rung, of the halving, and of the runs on all the traffic; the rest is
for the prediction.
"""
MOST_WHOLE_RUNS, MOST_WHOLE_ROWS = 4 * FINALISTS + 1, 8_000
WHOLE_WARMUP_SHARE = 1 / 8
"""Part of the traffic at its start that fills caches and queues and is not counted."""
SECONDS_PER_REQUEST = 2e-4
"""CPU time assumed for one simulated request when a search is sized; a slower host ends it before its last run."""


class AdvicePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to search for, and how long."""

    source: RunTask
    """The live policy on the trace."""
    budget_s: float
    runs: int | None
    """Maximum number of runs; None: what the budget is expected to allow."""
    jobs: int
    practical: Practical
    fleets: FleetRange | None = None
    """The fleets that can be proposed; None: only the live one."""


def advise(plan: AdvicePlan, on_runs: Callable[[int], object] = lambda runs: None) -> Advice:
    """Search and predict; return a proposal or an abstention. `on_runs` receives the number of runs so far.

    Raises TraceError, WrongWorkloadError, and ShortTraceError.
    """
    windows, scale = trace_windows(plan.source)
    with Evaluator(plan.source, scale, plan.jobs, plan.budget_s) as evaluator:
        return _Search(plan, windows, evaluator, on_runs).advice()


def trace_windows(source: RunTask) -> tuple[WindowPlan, float]:
    """Return the windows of the task's trace and the factor of its times; raise like `advise`."""
    workload = workload_of(source)
    columns = columns_of(workload, source.spec.qps)
    windows = window_plan(columns)
    # A trace with windows has a duration.
    return windows, columns.times_s[-1] / (workload.rows[-1].timestamp - workload.rows[0].timestamp) * 1000


def columns_of(workload: Workload, qps: float | None) -> TraceColumns:
    """Return the requests as windows are cut from them, at a mean rate of `qps` (None: as recorded)."""
    outputs = [row.output_length for row in workload.rows]
    return TraceColumns(scaled_times(workload.rows, qps), workload.prompt_tokens, outputs, workload.infinite_hits)


class _Search:
    """One search. Mutable state: `_tried`, all candidates, and `_cut_short`."""

    def __init__(
        self, plan: AdvicePlan, windows: WindowPlan, evaluator: Evaluator, on_runs: Callable[[int], object]
    ) -> None:
        self._plan = plan
        spec = plan.source.spec
        self._fleets = plan.fleets or FleetRange.only(FleetShape(spec.engines, spec.prefill))
        self._live = FleetPolicy(spec.policy, self._fleets.live)
        self._routing = search_space(spec.policy)
        self._space = (*self._fleets.dimensions(), *self._routing)
        self._windows = windows
        self._evaluator = evaluator
        self._on_runs = on_runs
        self._seeds = tuple(range(plan.source.spec.seed, plan.source.spec.seed + SEEDS))
        self._tried: dict[bytes, FleetPolicy] = {}
        self._cut_short = False

    def advice(self) -> Advice:
        """Return the first finalist whose prediction holds a practical improvement."""
        rejected: list[PolicyCandidate] = []
        try:
            for tried in self._finalists():
                candidate = self._predicted(tried)
                if not candidate.objections:
                    return self._result(candidate, "", rejected)
                rejected.append(candidate)
        except BudgetSpentError as error:
            return self._result(None, str(error), rejected)
        if rejected:
            return self._result(None, f"The best candidate was not confirmed: {rejected[0].objections[0]}", rejected)
        return self._result(None, "No candidate was better than the live policy on the search windows", rejected)

    def _rungs(self) -> tuple[Rung, ...]:
        """Return the rungs of the search that leave enough runs for the prediction."""
        plan, search = self._plan, self._windows.search
        runs = plan.runs
        if runs is None:
            mean_rows = sum(item.last - item.first for item in search) / len(search)
            runs = int(plan.budget_s / (SECONDS_PER_REQUEST * mean_rows))
        predicting = (FINALISTS + 1) * SEEDS * (len(self._windows.predict) + len(self._windows.check))
        steps = rungs(max(min(int(runs * SEARCH_SHARE), runs - predicting - MOST_WHOLE_RUNS), 0), len(search))
        if not steps:
            raise BudgetSpentError("The budget does not suffice for a search")
        return steps

    def _finalists(self) -> list[FleetPolicy]:
        """Return the candidates that beat the live policy on all search windows, the best first."""
        (first, *later), search, evaluator = self._rungs(), self._windows.search, self._evaluator
        evaluator.limit_s = self._plan.budget_s * FIRST_RUNG_SHARE
        ranked = self._sampled(first, search[: first.windows])
        # The rest is reserved: a candidate without a prediction is no evidence.
        evaluator.limit_s = self._plan.budget_s * SEARCH_SHARE
        for rung in later:
            try:
                ranked = self._ranked(ranked[: rung.candidates], search[: rung.windows])
            except BudgetSpentError:
                # On a slow host, the best so far are predicted from what is reserved.
                self._cut_short = True
                break
        evaluator.limit_s = self._plan.budget_s * WHOLE_SHARE
        try:
            ranked = self._ranked_on_all(ranked)
        except BudgetSpentError:
            self._cut_short = True
        evaluator.limit_s = self._plan.budget_s
        # The best of each fleet first: where one engine less is not confirmed, one more may be.
        best = {tried.fleet: tried for tried in reversed(ranked)}
        return sorted(ranked, key=lambda tried: tried is not best[tried.fleet])[:FINALISTS]

    def _starting(self) -> list[Point]:
        """Return each placement on the live fleet, then the live and the default one on other fleets."""
        live, default = self._live.policy, RoutingPolicy()
        default = msgspec.structs.replace(live, placement=default.placement, order=default.order)
        shape, *others = self._fleets.starting_shapes()
        points: list[Point] = [
            {**self._fleets.point_of(shape), **point} for point in starting_points(live, self._routing)
        ]
        return points + [
            {**self._fleets.point_of(other), **point_of(policy, self._routing)}
            for other in others
            for policy in (live, default)
        ]

    def _sampled(self, rung: Rung, windows: Sequence[TraceWindow]) -> list[FleetPolicy]:
        """Run the candidates of the first rung, and return them in order of utility."""
        sampler = PolicySampler(self._space, self._starting(), self._seeds[0])
        live = self._run([self._live], windows)[0]
        utilities: dict[bytes, float] = {}
        for first in range(0, rung.candidates, BATCH):
            points = sampler.suggest(min(BATCH, rung.candidates - first))
            suggested = [(trial, self._at(point)) for trial, point in points]
            try:
                results = self._run([tried for _, tried in suggested], windows)
            except BudgetSpentError:
                if not self._tried:
                    raise
                self._cut_short = True
                break
            for (trial, tried), runs in zip(suggested, results, strict=True):
                key = msgspec.json.encode(tried)
                self._tried[key] = tried
                utilities[key] = utility(live, runs, self._plan.practical)
                sampler.learn(trial, (_mean(ON_TIME, runs), _mean(ON_TIME_TOKENS, runs), utilities[key]))
        return [self._tried[key] for key in sorted(self._tried, key=lambda key: -utilities[key])]

    def _at(self, point: Point) -> FleetPolicy:
        routing = {path: value for path, value in point.items() if path not in (ENGINES, PREFILL)}
        return FleetPolicy(policy_at(routing, self._live.policy), self._fleets.shape_at(point))

    def _point(self, tried: FleetPolicy) -> Point:
        return {**self._fleets.point_of(tried.fleet), **point_of(tried.policy, self._routing)}

    def _ranked(self, policies: Sequence[FleetPolicy], windows: Sequence[TraceWindow]) -> list[FleetPolicy]:
        """Return the policies that beat the live one in these windows, the best first."""
        live, *results = self._run([self._live, *policies], windows)
        scored = [
            (utility(live, runs, self._plan.practical), policy) for policy, runs in zip(policies, results, strict=True)
        ]
        # Stable: of equal candidates, the earlier.
        return [policy for gain, policy in sorted(scored, key=lambda item: -item[0]) if gain > 0]

    def _ranked_on_all(self, ranked: Sequence[FleetPolicy]) -> list[FleetPolicy]:
        """Return the best candidates and their plain variants that beat the live policy on all the traffic, in order.

        Windows are too short for what builds up slowly: a queue, a cache, or requests that wait until they starve. A
        plain variant precedes a candidate that does not gain a practical size more.
        """
        if not ranked:
            return []
        best = ranked[: MOST_WHOLE_RUNS // 2]
        plain = {msgspec.json.encode(one): one for one in map(self._plain, best)}
        tuned = {key: one for one in best if (key := msgspec.json.encode(one)) not in plain}
        tried = [*plain.values(), *tuned.values()]
        windows = (*self._windows.search, *self._windows.predict, *self._windows.check)
        last = max(item.last for item in windows)
        affordable = self._plan.budget_s * (WHOLE_SHARE - SEARCH_SHARE) / (SECONDS_PER_REQUEST * (len(tried) + 1))
        rows = min(last - min(item.first for item in windows), MOST_WHOLE_ROWS, int(affordable))
        whole = msgspec.structs.replace(windows[0], first=last - rows, last=last, warmup=int(rows * WHOLE_WARMUP_SHARE))
        live, *results = self._run([self._live, *tried], [whole])
        gains = [utility(live, runs, self._plan.practical) for runs in results]
        for number in range(len(plain), len(tried)):
            gains[number] -= 1
        order = sorted(range(len(tried)), key=lambda number: -gains[number])
        return [tried[number] for number in order if gains[number] > 0]

    def _plain(self, tried: FleetPolicy) -> FleetPolicy:
        """Return the live policy with the candidate's rules, on its fleet, with their default or live parameters."""
        live, policy = self._live.policy, tried.policy
        placement, order = (
            old if old.name == new.name else Stage(name=new.name)
            for old, new in ((live.placement, policy.placement), (live.order, policy.order))
        )
        return FleetPolicy(msgspec.structs.replace(live, placement=placement, order=order), tried.fleet)

    def _run(
        self, policies: Sequence[FleetPolicy], windows: Sequence[TraceWindow], seeds: int = 1
    ) -> list[list[WindowFigures]]:
        made = self._evaluator.figures(policies, windows, self._seeds[:seeds])
        self._on_runs(self._evaluator.runs)
        return made

    def _predicted(self, candidate: FleetPolicy) -> PolicyCandidate:
        """Return the candidate with its prediction, measured in the windows for checking."""
        windows, practical = self._windows, self._plan.practical
        live, tried = self._run([self._live, candidate], windows.predict, SEEDS)
        checks = self._run([self._live, candidate], windows.check, SEEDS)
        changes = predicted_changes((live, tried), (checks[0], checks[1]), SEEDS)
        before, after = self._point(self._live), self._point(candidate)
        return PolicyCandidate(
            policy=candidate.policy,
            fleet=candidate.fleet,
            settings={path: value for path, value in after.items() if before.get(path) != value},
            changes=changes,
            costs=costs_of(changes, practical),
            worse=worse_groups(live, tried, practical),
            objections=objections(changes, practical),
        )

    def _result(self, proposal: PolicyCandidate | None, abstains: str, rejected: Sequence[PolicyCandidate]) -> Advice:
        return Advice(
            proposal=proposal,
            abstains=abstains,
            rejected=tuple(rejected),
            live=self._live.policy,
            fleet=self._live.fleet,
            windows=self._windows,
            seeds=self._seeds,
            practical=self._plan.practical,
            candidates=len(self._tried),
            runs=self._evaluator.runs,
            cpu_s=self._evaluator.cpu_s,
            budget_s=self._plan.budget_s,
            cut_short=self._cut_short,
        )


def _mean(name: str, runs: Sequence[WindowFigures]) -> float:
    return fmean(run.figures[name] or 0.0 for run in runs)
