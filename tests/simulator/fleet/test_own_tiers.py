"""A simulated fleet whose engines keep copies in CPU memory: indexed, used, and learned at their real cost."""

from __future__ import annotations

import msgspec
import pytest

from kvstore.index.lower_tiers import CPU
from routing.policy.policy_document import Stage
from simulator.engine_models.engine_profile import EngineProfile
from simulator.fleet.fleet_simulation import FleetSimulation
from simulator.runs.simulation_run import RunSpec, evaluation_policy, run
from simulator.workloads.prepared_workload import Workload
from simulator.workloads.registry import generate_workload
from tests.simulator.fleets import row, simulated

WORKLOAD = Workload(generate_workload("toolagent_like", seed=7, rows=1200), max_input=20_480)
POLICY = msgspec.structs.replace(evaluation_policy(Stage(name="least_cost"), Stage(name="fifo")), cost="fitted")


def fleet(cpu_blocks: int, load_s: float = 0.0) -> FleetSimulation:
    profile = EngineProfile(num_blocks=300, cpu_blocks=cpu_blocks, cpu_load_per_token_s=load_s)
    spec = RunSpec(policy=POLICY, engine_model="colocated", engines=4, qps=9, warmup=300, profile=profile)
    simulation = run(spec, WORKLOAD)
    simulation.check()
    return simulation


def mean_ttft_s(simulation: FleetSimulation) -> float:
    waits = [item.first_token_s - item.request.arrived_s for item in simulation.history if item.first_token_s]
    return sum(waits) / len(waits)


@pytest.mark.parametrize(("load_s", "most"), [(6e-6, 0.9), (30e-6, 1.15)])
def test_the_learned_cost_of_a_tier_is_the_real_one_and_a_fast_tier_helps(load_s: float, most: float) -> None:
    """A slow tier can cost time, because the engine loads whether or not that is faster, as vLLM does."""
    simulation = fleet(4000, load_s)
    router = simulation.router
    learned = router.fleet.loading_costs.token_s(router.fleet.facts()[0].engine_id, CPU)
    assert learned == pytest.approx(load_s, rel=0.25)
    assert mean_ttft_s(simulation) < most * mean_ttft_s(fleet(0))


def test_the_index_knows_the_copies_of_each_engine() -> None:
    profile = EngineProfile(num_blocks=8, cpu_blocks=14)
    rows = [row(number, range(10 * (number % 8), 10 * (number % 8) + 6)) for number in range(80)]
    policy = evaluation_policy(Stage(name="least_cost"), Stage(name="fifo"), profile=profile)
    spec = RunSpec(policy=policy, engine_model="colocated", engines=2, profile=profile)
    simulation, _ = simulated(rows, spec)
    tiers, router = simulation.router.index.tiers, simulation.router
    for station in simulation.stations:
        target = router.fleet.known_target(station.engine_id)
        held = {key for key, targets in tiers._tables[CPU].items() if targets >> target & 1}
        assert held == set(station.engine._copies._order)
        assert len(held) == 14
