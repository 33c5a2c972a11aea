"""Loads of the prefill and decode engines of a simulated fleet, as shares of what their objectives allow."""

from __future__ import annotations

from planning.facts.fleet_facts import ACTIVE, PoolFacts, RoleLoad
from planning.prefill_decode.role_changes import DECODE, PREFILL
from simulator.engine_models.pd import DecodeRole
from simulator.fleet.engine_slots import Station
from simulator.fleet.fleet_simulation import FleetSimulation


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
