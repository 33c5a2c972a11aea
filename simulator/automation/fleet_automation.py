"""Runs the planners on a simulated pool in virtual time: observe, plan, apply, once per tick.

The work of live jobs and actuators takes no time here. Engines start after their warm-up with an empty cache, and
drained engines stop once they are empty. As in a gateway, requests without a first token are moved away from an engine
that is silent, paused, or without progress for the hang limit.
"""

from __future__ import annotations

from itertools import count
from typing import Literal

import msgspec

from planning.documents.automation_document import AutomationPolicy
from planning.documents.automation_mode import ACT, OFF
from planning.engine_health.engine_health import plan_health
from planning.engine_health.health_memory import HealthMemory
from planning.engine_health.health_signs import NO_PROGRESS, NOT_STARTING, SELF_CLEARING_FAULTS
from planning.engine_health.health_verdict import QUARANTINED, HealthPlan, HealthVerdict
from planning.facts.fleet_facts import ACTIVE, PoolFacts, Role, RoleLoad
from planning.prefill_decode.prefill_decode import plan_ratio
from planning.prefill_decode.ratio_plan import RatioMemory, RatioPlan
from planning.prefill_decode.role_changes import DECODE, PREFILL
from planning.scaling.scaling import plan_scaling
from planning.scaling.scaling_plan import ScalingMemory, ScalingPlan
from simulator.automation.pool_observer import PoolWatch
from simulator.automation.rebalancing import RebalanceDrive
from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_models.pd import DecodeRole
from simulator.fleet.engine_slots import Station
from simulator.fleet.fleet_changes import EngineDies, EngineDrains, EngineJoins, EngineWeighs
from simulator.fleet.fleet_simulation import FleetSimulation


class EngineChange(msgspec.Struct, frozen=True):
    """One engine that was added, removed, or added again in another role."""

    at_s: float
    engine_id: str
    what: Literal["added", "removed", "turned"]
    role: Role
    """The engine's role after the change, or before its removal."""


TICK_S = 1.0
HANG_LIMIT_S = 300.0
"""Seconds without progress after which an engine is considered hung, as in gateways."""


class FleetAutomation:
    """The automations of one pool. Mutable: the plans, the planners' memories, and the starting engines.

    `rings` is the number of the placement's hash rings, 0 if it has none. `restart_s` is the time an engine needs to
    change its role.
    """

    def __init__(
        self,
        policy: AutomationPolicy,
        profile: EngineProfile,
        *,
        rings: int = 0,
        restart_s: float = 20.0,
    ) -> None:
        self.watch = PoolWatch(profile)
        self.scaling: list[ScalingPlan] = []
        """Plans with an effect."""
        self.health: list[HealthPlan] = []
        """Plans in which a verdict changed."""
        self.ratio: list[RatioPlan] = []
        """All plans of the prefill:decode ratio."""
        self.changes: list[EngineChange] = []
        """Changes of the fleet, and when they were complete."""
        self.sizes: list[tuple[float, int]] = []
        """(moment, engines that take work), one per tick."""
        self._policy = policy
        self._rings = rings
        self._scaling_memory = ScalingMemory()
        self._health_memory = HealthMemory()
        self.rebalance = RebalanceDrive(policy.rebalance, profile)
        self._ratio_memory = RatioMemory()
        self._role_loads: list[RoleLoad] = []
        self._restart_s = restart_s
        self._changing_role: dict[str, Role] = {}
        self._starting: dict[str, float] = {}
        self._names = count(1)
        self._hung: set[str] = set()

    def attach(self, simulation: FleetSimulation) -> None:
        """Run the automations on this simulation, once per tick."""
        if self._policy.scaling.starts_on_demand:
            for router in simulation.routers:
                router.cold.adopt(self._policy.scaling.warm_up_s)
        simulation.call_at(simulation.now + TICK_S, self._tick)

    def _tick(self, simulation: FleetSimulation) -> None:
        now = simulation.now
        self._stop_drained(simulation)
        facts = self.watch.observe(simulation, self._starting, now)
        self.sizes.append((now, len(simulation.router.view.roster.accepting)))
        if self._policy.health.mode != OFF:
            self._automate_health(simulation, facts)
        if self._policy.rebalance.mode != OFF:
            self.rebalance.automate(simulation, facts)
        if self._policy.scaling.mode != OFF:
            self._automate_scaling(simulation, facts)
        if self._policy.ratio.mode != OFF:
            self._automate_ratio(simulation, facts)
        simulation.call_at(now + TICK_S, self._tick)

    def _stop_drained(self, simulation: FleetSimulation) -> None:
        for station in simulation.stations:
            if not station.accepts and not station.live:
                simulation.change(EngineDies(simulation.now, station.engine_id))
                role = self._changing_role.pop(station.engine_id, None)
                if role is None:
                    self.changes.append(EngineChange(simulation.now, station.engine_id, "removed", station.role))
                else:
                    self._order(simulation, station.engine_id, self._restart_s, role, turned=True)

    def _automate_health(self, simulation: FleetSimulation, facts: PoolFacts) -> None:
        plan, self._health_memory = plan_health(
            facts, self._health_memory, self._policy.health, newcomer_slow_start_s=self._policy.scaling.slow_start_s
        )
        if plan.changed:
            self.health.append(plan)
        if self._policy.health.mode != ACT:
            return
        changed = set(plan.changed)
        for verdict in plan.verdicts:
            name = verdict.engine_id
            station = simulation.stations.get(name)
            leaves = self._hangs(verdict, simulation.now) or (name in changed and verdict.code in SELF_CLEARING_FAULTS)
            # As in a gateway: requests leave a silent or paused engine at once,
            # one without progress after the hang limit.
            rescue = leaves and verdict.state == QUARANTINED
            if station is not None and (rescue or station.load_share != verdict.load_share):
                simulation.change(EngineWeighs(simulation.now, name, verdict.load_share, rescue=rescue))

    def _hangs(self, verdict: HealthVerdict, now: float) -> bool:
        """Return whether the engine has reached the hang limit without progress; True once per hang."""
        stalled = verdict.state == QUARANTINED and verdict.code in (NO_PROGRESS, NOT_STARTING)
        hung = stalled and now - verdict.since_s >= HANG_LIMIT_S
        # Once per hang: its requests have been moved by then.
        new = hung and verdict.engine_id not in self._hung
        (self._hung.add if hung else self._hung.discard)(verdict.engine_id)
        return new

    def _automate_scaling(self, simulation: FleetSimulation, facts: PoolFacts) -> None:
        settings = self._policy.scaling
        plan, self._scaling_memory = plan_scaling(
            facts, self.watch.windows.demand, self._scaling_memory, settings, rings=self._rings
        )
        if plan.action == "none":
            return
        self.scaling.append(plan)
        if settings.mode != ACT:
            return
        for engine_id in plan.drain:
            simulation.change(EngineDrains(simulation.now, engine_id))
        for role in plan.add:
            self._order(simulation, f"a-{next(self._names):03}", settings.warm_up_s, role)

    def _automate_ratio(self, simulation: FleetSimulation, facts: PoolFacts) -> None:
        settings = self._policy.ratio
        self._role_loads = [
            role_load for role_load in self._role_loads if role_load.at_s > facts.now_s - settings.window_s
        ]
        self._role_loads += role_loads(simulation, facts)
        plan, self._ratio_memory = plan_ratio(facts, self._role_loads, self._ratio_memory, settings)
        self.ratio.append(plan)
        if settings.mode != ACT:
            return
        for change in plan.role_changes:
            self._changing_role[change.engine_id] = change.after
            simulation.change(EngineDrains(simulation.now, change.engine_id))

    def _order(
        self, simulation: FleetSimulation, name: str, warm_up_s: float, role: Role, *, turned: bool = False
    ) -> None:
        """Start a new engine, which is ready after its warm-up."""
        self._starting[name] = simulation.now

        def comes_up(running: FleetSimulation) -> None:
            del self._starting[name]
            running.change(EngineJoins(running.now, name, role=role))
            self.changes.append(EngineChange(running.now, name, "turned" if turned else "added", role))

        simulation.call_at(simulation.now + warm_up_s, comes_up)


def scaling_timeline(automation: FleetAutomation) -> list[dict[str, object]]:
    """Return the plans that had an effect, as rows of a report."""
    return [
        {
            "at_s": plan.at_s,
            "action": plan.action,
            "engines": plan.engines,
            "target": plan.target,
            "reasons": [reason.code for reason in plan.reasons],
            "why": "; ".join(reason.text for reason in plan.reasons),
            "remap": None if plan.remap is None else msgspec.structs.asdict(plan.remap),
        }
        for plan in automation.scaling
    ]


def role_loads(simulation: FleetSimulation, facts: PoolFacts) -> list[RoleLoad]:
    """Return one sample per serving engine: its utilization, and Mooncake §4.3's predicted times over their SLOs."""
    loads: list[RoleLoad] = []
    for engine in facts.engines:
        station = simulation.stations.get(engine.engine_id)
        if station is None or engine.lifecycle != ACTIVE:
            continue
        if engine.role == PREFILL:
            # The wait alone is near zero until an engine is almost always busy, and then grows without bound.
            busy = 1.0 if station.engine.running else 0.0
            loads.append(RoleLoad(facts.now_s, PREFILL, busy + engine.in_flight_s / facts.ttft_slo_s))
        elif engine.role == DECODE and isinstance(station.engine, DecodeRole):
            loads.append(RoleLoad(facts.now_s, DECODE, _decode_load(station, station.engine, facts.tpot_slo_s)))
    return loads


def _decode_load(station: Station, engine: DecodeRole, tpot_slo_s: float) -> float:
    """Return the larger of decode step time over its objective and in-flight tokens over the engine's memory."""
    records = list(station.live.values())
    # An answer in progress is half done on average.
    context = sum(record.request.prompt_tokens + record.output_tokens // 2 for record in records)
    memory = sum(record.request.prompt_tokens + record.output_tokens for record in records)
    step_s = engine.profile.step_s(min(len(records), engine.profile.max_running), context) if records else 0.0
    return max(step_s / tpot_slo_s, memory / engine.profile.device_tokens)
