"""The replay of a pool's day: every policy on the same windows, requests, and engines, within a budget of CPU time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from planning.savings.day_savings import ArmRun, PolicyRun, WindowRuns, engines_needed
from planning.savings.day_windows import LEAST_REQUESTS, DayWindow
from routing.policy.admission_document import AdmissionDocument
from routing.policy.policy_document import RoutingPolicy, Stage
from routing.trials.arms import CONTROL, ArmEntry
from simulator.engine_models.engine_profile import EngineProfile
from simulator.fleet.request_record import RequestRecord
from simulator.kv_nodes.kv_nodes_spec import KvNodesSpec
from simulator.runs.run_report import on_time
from simulator.runs.simulation_run import RunSpec, run
from simulator.workloads.arrival_pattern import ArrivalPattern
from simulator.workloads.prepared_workload import Workload
from simulator.workloads.trace import TraceRow

ROUTERS = ("round_robin", "llmd_weighted", "dynamo_kv", "sglang_cache_aware")
"""Rules of other routers in simulator.baselines. `llmd_weighted` is the scorer of the Gateway API Inference Extension.
"""
SEEDS = 2
"""Runs of each policy on each window. The first has the recorded request times, others slightly shifted ones."""
ARM_SEEDS = 3
"""The same for the holdback: each run assigns other sessions to it."""
SAME_SHARE = 0.005
"""On-time shares that differ by no more count as the same."""
SEARCH_RUNS = 3
"""Mean number of runs expected to find out how many engines a policy needs."""
_BUDGET_SHARE = 0.8
"""Share of the budget for which windows are sized; the rest is for slower ones."""


class WindowTraffic(msgspec.Struct, frozen=True, kw_only=True):
    """One window with its recorded requests."""

    window: DayWindow
    rows: list[TraceRow]
    version: int
    """Policy version that decided most of them."""
    engines: int
    """Number of engines that served them."""
    ttft_s: float | None
    """Recorded mean time to first token of the counted requests."""


class EngineGuess(msgspec.Struct, frozen=True):
    """A simulated engine that may behave like the pool's."""

    model: str
    profile: EngineProfile


class DayQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """What to replay."""

    live: dict[int, RoutingPolicy]
    """Live policies of the day by version; a window without one of them is not replayed."""
    earlier: dict[str, RoutingPolicy]
    """Earlier policies of the pool by name."""
    routers: tuple[str, ...] = ROUTERS
    engines: tuple[EngineGuess, ...]
    kv_nodes: KvNodesSpec | None = None
    holdback: Stage | None = None
    holdback_share: float = 0.0
    budget_s: float


class DayRuns(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a replay."""

    runs: tuple[WindowRuns, ...]
    engine_model: str
    cpu_s: float
    cut_short: bool
    """Whether the budget ended the replay before its last window."""


def alternatives(question: DayQuestion, live: RoutingPolicy) -> dict[str, RoutingPolicy]:
    """Return what is compared with the live policy. Other routers have no queue: first in, first out, no rejection."""
    plain = replace(live, order=Stage(name="fifo"), admission=AdmissionDocument())
    return {**{name: replace(plain, placement=Stage(name=name)) for name in question.routers}, **question.earlier}


def replay_day(
    question: DayQuestion, windows: Sequence[WindowTraffic], on_share: Callable[[float], None] = lambda _share: None
) -> DayRuns:
    """Replay the windows in order until the budget is spent. `on_share` receives the completed share, 0..1."""
    known = [item for item in windows if item.version in question.live]
    if not known:
        return DayRuns(runs=(), engine_model="", cpu_s=0.0, cut_short=False)
    began_s = time.process_time()
    engine, request_s = _closest(question, known[0])
    per_window = (1 + len(question.routers) + len(question.earlier)) * (SEEDS + SEARCH_RUNS) + ARM_SEEDS
    rows = int(_BUDGET_SHARE * question.budget_s / (len(known) * per_window * max(request_s, 1e-6)))
    made: list[WindowRuns] = []
    for traffic in known:
        if time.process_time() - began_s > question.budget_s:
            break
        made.append(_WindowReplay(question, engine, fitted(traffic, rows)).runs())
        on_share(len(made) / len(known))
    cut_short = len(made) < len(known)
    return DayRuns(
        runs=tuple(made), engine_model=engine.model, cpu_s=time.process_time() - began_s, cut_short=cut_short
    )


def fitted(traffic: WindowTraffic, rows: int) -> WindowTraffic:
    """Return the traffic with at most `rows` requests, without the first ones of its warm-up and of the window."""
    window, over = traffic.window, len(traffic.rows) - max(rows, 2 * LEAST_REQUESTS)
    if over <= 0:
        return traffic
    warmup = window.warmup - min(window.warmup, over * window.warmup // len(traffic.rows))
    return replace(traffic, rows=traffic.rows[over:], window=replace(window, first=window.first + over, warmup=warmup))


def _closest(question: DayQuestion, traffic: WindowTraffic) -> tuple[EngineGuess, float]:
    """Return the engine whose mean TTFT is closest to the recorded one, and the CPU seconds of a simulated request."""
    guesses = question.engines if traffic.ttft_s else question.engines[:1]
    began_s, misses = time.process_time(), []
    for guess in guesses:
        replayed = _WindowReplay(question, guess, traffic)
        ttfts = [item.ttft_s for item in replayed.records(replayed.live, 0)[0] if item.ttft_s]
        mean_s = sum(ttfts) / len(ttfts) if ttfts else 0.0
        misses.append(abs(math.log(mean_s / traffic.ttft_s)) if mean_s and traffic.ttft_s else math.inf)
    spent_s = time.process_time() - began_s
    return guesses[misses.index(min(misses))], spent_s / len(guesses) / len(traffic.rows)


class _WindowReplay:
    """Runs of one window."""

    def __init__(self, question: DayQuestion, engine: EngineGuess, traffic: WindowTraffic) -> None:
        self.live = question.live[traffic.version]
        self._question = question
        self._engine = engine
        self._traffic = traffic
        self._workload = Workload(traffic.rows)
        # The mean gap between two requests.
        self._jitter_s = (traffic.rows[-1].timestamp - traffic.rows[0].timestamp) / 1000 / len(traffic.rows)

    def runs(self) -> WindowRuns:
        """Return the runs of all policies."""
        counted = self._traffic.rows[self._traffic.window.warmup :]
        tokens: dict[str, int] = {}
        for row in counted:
            tokens[row.tenant] = tokens.get(row.tenant, 0) + row.input_length + row.output_length
        live, target = self._run(self.live, None)
        others = alternatives(self._question, self.live)
        return WindowRuns(
            window=self._traffic.window,
            live=live,
            alternatives={name: self._run(policy, target)[0] for name, policy in others.items()},
            arms=tuple(self._arms(seed) for seed in range(ARM_SEEDS)) if self._question.holdback else (),
            tokens=tokens,
        )

    def records(
        self, policy: RoutingPolicy, seed: int, engines: int = 0, arms: tuple[ArmEntry, ...] = ()
    ) -> tuple[list[RequestRecord], list[bool], list[str]]:
        """Return the counted requests of one run, which of them were on time, and their arms."""
        spec = RunSpec(
            policy=policy,
            engines=engines or self._traffic.engines,
            arrivals=ArrivalPattern(jitter_s=self._jitter_s if seed else 0.0),
            warmup=self._traffic.window.warmup,
            engine_model=self._engine.model,
            profile=self._engine.profile,
            seed=seed,
            kv_nodes=self._question.kv_nodes,
            arms=arms,
        )
        simulation = run(spec, self._workload)
        counted = simulation.history[spec.warmup :]
        met = [on_time(record, None, self.live.ttft_slo_s) for record in counted]
        return counted, met, [simulation.router.arms.name_of(record.request) for record in counted]

    def _run(self, policy: RoutingPolicy, target: float | None) -> tuple[PolicyRun, float]:
        """Return the policy's run, and the on-time share that others must reach (None: its own)."""
        shares, tenants, counted = [], dict[str, float](), 0
        for seed in range(SEEDS):
            records, met, _ = self.records(policy, seed)
            counted = len(records)
            shares.append(sum(met) / counted)
            for record, good in zip(records, met, strict=True):
                name = record.request.tenant_id
                tenants[name] = tenants.get(name, 0.0) + (not good) / counted / SEEDS
        wanted = max(0.0, shares[0] - SAME_SHARE) if target is None else target
        engines, capped = self._engines(policy, shares[0], wanted)
        late = 1 - sum(shares) / SEEDS
        return PolicyRun(late=late, tenants=tenants, engines=engines, capped=capped), wanted

    def _engines(self, policy: RoutingPolicy, share: float, target: float) -> tuple[float, bool]:
        """Return how many engines reach the target, by the first seed, and whether that is only a lower bound."""
        present = self._traffic.engines
        known, most, step = {present: share}, 2 * present + 2, 1
        fine = max(1, present // 16)
        # Doubling steps until one number suffices and another does not, then halves between them.
        up = share < target
        number = present
        while (share < target) == up:
            number = min(most, number + step) if up else max(1, number - step)
            if number in known:
                break
            share = known[number] = self._share(policy, number)
            step *= 2
        while True:
            enough = min((item for item, value in known.items() if value >= target), default=None)
            if enough is None:
                return float(most), True
            below = max((item for item in known if item < enough), default=enough)
            if enough - below <= fine:
                return engines_needed(known, target) or float(enough), False
            middle = (enough + below) // 2
            known[middle] = self._share(policy, middle)

    def _share(self, policy: RoutingPolicy, engines: int) -> float:
        met = self.records(policy, 0, engines)[1]
        return sum(met) / len(met)

    def _arms(self, seed: int) -> ArmRun:
        """Return both sides of the holdback in one run."""
        if (placement := self._question.holdback) is None:
            return ArmRun(0, 0, 0, 0)
        entry = ArmEntry(arm=CONTROL, trial_id=f"{seed}", share=self._question.holdback_share, placement=placement)
        _, met, names = self.records(self.live, seed, arms=(entry,))
        late = [name for name, good in zip(names, met, strict=True) if not good]
        control, control_late = names.count(CONTROL), late.count(CONTROL)
        return ArmRun(control, control_late, len(names) - control, len(late) - control_late)
