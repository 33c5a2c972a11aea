"""Runs the rebalancing planner on a simulated pool: it widens hot prefixes and moves queued requests."""

from __future__ import annotations

from collections import deque

from planning.documents.automation_mode import ACT
from planning.documents.rebalance_document import RebalanceDocument
from planning.facts.fleet_facts import PoolFacts, PrefixFacts
from planning.rebalance.rebalance import plan_rebalance
from planning.rebalance.rebalance_plan import RebalanceMemory, RebalancePlan
from routing.rebalancing_overrides import KeepsPrefixes, relieve, sticky_placement_of, widen
from simulator.engine_models.engine_profile import EngineProfile
from simulator.fleet.fleet_simulation import FleetSimulation
from simulator.fleet.request_record import RequestRecord

WINDOW_S = 30.0
"""Window in seconds over which the work of prefixes is summed."""
MOST = 64
"""Maximum number of prefixes passed to the planner; those with the most work are passed."""


class RebalanceDrive:
    """Runs the rebalancing planner. Mutable: recent requests with their prefixes, the planner's memory, and the
    plans.
    """

    def __init__(self, settings: RebalanceDocument, profile: EngineProfile) -> None:
        self.plans: list[RebalancePlan] = []
        self._settings = settings
        self._profile = profile
        self._memory = RebalanceMemory()
        self._seen = 0
        self._recent: deque[tuple[float, int, RequestRecord]] = deque()

    def automate(self, simulation: FleetSimulation, facts: PoolFacts) -> None:
        """Plan one round and apply it."""
        keeper = sticky_placement_of(simulation.router)
        self._take(simulation, keeper, facts.now_s)
        plan, self._memory = plan_rebalance(
            facts,
            self._prefixes(),
            self._memory,
            self._settings,
            usual_d=keeper.d if keeper is not None else 0,
        )
        if plan.wider or plan.narrower or plan.moves:
            self.plans.append(plan)
        if self._settings.mode != ACT:
            return
        widen(simulation.router, {int(key, 16): d for key, d in plan.widened.items()})
        for move in plan.moves:
            simulation.deliver(relieve(simulation.router, move.engine_id, move.at_most, simulation.now))

    def _take(self, simulation: FleetSimulation, keeper: KeepsPrefixes | None, now: float) -> None:
        for record in simulation.history[self._seen :]:
            keys = record.request.keys
            # By the placement's own prefixes where it has some: only those can be widened.
            prefix = keeper.prefix_of(record.request) if keeper is not None else keys[0] if keys else 0
            self._recent.append((now, prefix, record))
        self._seen = len(simulation.history)
        while self._recent and self._recent[0][0] < now - WINDOW_S:
            self._recent.popleft()

    def _prefixes(self) -> list[PrefixFacts]:
        """Return the prefixes with the most work, and the engines on which it ran."""
        work: dict[int, dict[str, float]] = {}
        for _, prefix, record in self._recent:
            if record.engine_id:
                tokens = record.request.prompt_tokens
                of = work.setdefault(prefix, {})
                seconds = self._profile.prefill_s(tokens, record.hit_tokens or 0)
                of[record.engine_id] = of.get(record.engine_id, 0.0) + seconds
        ordered = sorted(work.items(), key=lambda item: (-sum(item[1].values()), item[0]))[:MOST]
        return [PrefixFacts(key=f"{prefix:016x}", work_s_by_engine=of) for prefix, of in ordered]
