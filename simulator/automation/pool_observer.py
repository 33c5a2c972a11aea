"""Observes a simulated pool like a gateway and prober, and passes the observable facts to the planners."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from planning.facts.fleet_facts import ACTIVE, DRAINING, STARTING, EngineObservation, Lifecycle, PoolFacts
from routing.ledger.fleet_view import EngineLoad
from simulator.automation.engine_speeds import SpeedWatch
from simulator.automation.pool_windows import WindowWatch
from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_models.faulty_engine import FaultyEngine
from simulator.fleet.engine_slots import Station
from simulator.fleet.fleet_simulation import FleetSimulation


class PoolWatch:
    """Observes the pool once per tick. Mutable: the windows, the speeds, and since when engines exist or are silent."""

    def __init__(self, profile: EngineProfile) -> None:
        self.windows = WindowWatch(profile)
        self._speeds = SpeedWatch()
        self._profile = profile
        self._since: dict[tuple[str, int], float] = {}
        self._silent_since: dict[str, float] = {}

    def observe(self, simulation: FleetSimulation, starting: Mapping[str, float], now: float) -> PoolFacts:
        """Return the current facts; `starting` maps ids of starting engines to the times at which they were ordered."""
        loads = {load.engine_id: load for load in simulation.router.loads(now)}
        self.windows.observe(simulation, list(loads.values()), now)
        self._speeds.observe(simulation, now)
        engines = [self._engine(station, loads[station.engine_id], now) for station in simulation.stations]
        engines += [
            EngineObservation(engine_id=name, lifecycle=STARTING, since_s=at_s) for name, at_s in starting.items()
        ]
        policy = simulation.router.policy
        return PoolFacts(
            pool_id=simulation.router.pool_id,
            now_s=now,
            ttft_slo_s=policy.ttft_slo_s,
            tpot_slo_s=policy.tpot_slo_s,
            engines=tuple(sorted(engines, key=lambda engine: engine.engine_id)),
            windows=tuple(self.windows.windows),
            unserved=simulation.router.cold.unserved(now),
        )

    def _engine(self, station: Station, load: EngineLoad, now: float) -> EngineObservation:
        state: Lifecycle = ACTIVE if station.accepts else DRAINING
        prefilling = [item.request.prompt_tokens for item in station.live.values() if item.first_token_s is None]
        slowness, slow_samples = self._speeds.slowness(station, now)
        tpot_s, tpot_samples = self._speeds.tpot(station, now)
        facts = EngineObservation(
            engine_id=station.engine_id,
            incarnation=station.incarnation,
            role=station.role,
            lifecycle=state,
            since_s=self._since.setdefault((station.engine_id, station.incarnation), now),
            load_share=station.load_share,
            report_s=now,
            running=station.engine.running,
            waiting=station.engine.waiting,
            kv_usage=station.engine.kv_usage,
            dispatched=len(station.live),
            prefilling=len(prefilling),
            # Other engines do not count their pieces, so a count that stays the same would say nothing.
            streaming=len(station.live) if isinstance(station.engine, FaultyEngine) else 0,
            longest_prefill_s=self._profile.prefill_s(max(prefilling), 0) if prefilling else 0.0,
            slowness=slowness,
            slowness_samples=slow_samples,
            tpot_s=tpot_s,
            tpot_samples=tpot_samples,
            in_flight_s=load.in_flight_s,
            bound=load.bound,
        )
        return self._probed(facts, station.engine, now) if isinstance(station.engine, FaultyEngine) else facts

    def _probed(self, facts: EngineObservation, engine: FaultyEngine, now: float) -> EngineObservation:
        """Return the facts with the engine's reported metrics in place of its true state."""
        metrics = engine.metrics(now)
        if metrics.reachable:
            self._silent_since.pop(facts.engine_id, None)
        else:
            self._silent_since.setdefault(facts.engine_id, now)
        return msgspec.structs.replace(
            facts,
            **msgspec.structs.asdict(metrics),
            unreachable_since_s=self._silent_since.get(facts.engine_id),
            first_tokens_total=engine.first_tokens_total,
            chunks_total=engine.pieces_total,
        )
