"""Inject faults into engines of a simulated fleet, and heal them, at given virtual times."""

from __future__ import annotations

from simulator.engine_models.faulty_engine import FaultKind, FaultyEngine
from simulator.fleet.fleet_changes import EngineJoins
from simulator.fleet.fleet_simulation import FleetSimulation


def fault_at(simulation: FleetSimulation, at_s: float, engine_id: str, fault: FaultKind) -> None:
    """Inject a fault at `at_s` ("none" heals). The engine must be a FaultyEngine by then."""

    def happens(running: FleetSimulation) -> None:
        engine = running.stations.of(engine_id).engine
        if not isinstance(engine, FaultyEngine):
            raise TypeError(f"{engine_id} cannot have faults: it is a {type(engine).__name__}")
        engine.set_fault(fault, running.now)
        running.stir(engine_id)

    simulation.call_at(at_s, happens)


def restart_at(simulation: FleetSimulation, at_s: float, engine_id: str) -> None:
    """Restart an engine: its cache and work are lost, and requests without a first token are placed again."""
    simulation.call_at(at_s, lambda running: running.change(EngineJoins(running.now, engine_id)))
