"""Documents on one node only, requested faster than they are served: prefetch makes no request wait longer.

It is what `bench.kv.live --parts prefetch` sends to live processes, under the virtual clock.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bench.kv.live import burst, planted_documents
from routing.policy.policy_document import Stage
from simulator.engine_models.engine_profile import EngineProfile
from simulator.fleet.fleet_changes import EngineDies, EngineJoins
from simulator.fleet.fleet_simulation import FleetSimulation
from simulator.kv_nodes.kv_nodes_spec import KvNodesSpec
from simulator.runs.simulation_run import RunSpec, evaluation_policy, run
from simulator.workloads.prepared_workload import Workload

BEGINS_MS = 60_000


def served(link_bytes_per_s: float, *, orders: bool) -> FleetSimulation:
    """Serve the burst by two engines at home on node 2; node 1 has the documents, from an engine that died.

    A third one, too slow for anything, keeps its place on node 1.
    """
    planted = planted_documents(0)
    asked = [replace(row, timestamp=row.timestamp + BEGINS_MS) for row in burst(planted, 0)]
    joining = [EngineJoins(40.0, "e-000", 0.001), *(EngineJoins(40.0, f"e-00{number}", 1.0) for number in (2, 3))]
    spec = RunSpec(
        policy=evaluation_policy(Stage(name="mooncake"), Stage(name="fifo")),
        engines=1,
        engine_model="colocated",
        profile=EngineProfile(recompute_last_block=True, num_blocks=72, link_bytes_per_s=link_bytes_per_s),
        kv_nodes=KvNodesSpec(nodes=2, dram_tokens=1_000_000, homes=(0, 1, 1), orders=orders),
        changes=(EngineDies(40.0, "e-001"), *joining),
    )
    simulation = run(spec, Workload([*planted, *asked]))
    simulation.check()
    return simulation


def mean_ttft_s(simulation: FleetSimulation) -> float:
    times_s = [item.ttft_s for item in simulation.history[16:] if item.ttft_s is not None]
    assert len(times_s) == 16
    return sum(times_s) / len(times_s)


@pytest.mark.parametrize(("link_bytes_per_s", "ratio"), [(12.5e9, 1.0), (3.125e9, 0.9), (1e9, 1.02)])
def test_a_prefetch_makes_no_request_wait_longer(link_bytes_per_s: float, ratio: float) -> None:
    with_it, without = served(link_bytes_per_s, orders=True), served(link_bytes_per_s, orders=False)
    assert with_it.nodes is not None
    assert with_it.nodes.worth.prefetches > 0
    assert mean_ttft_s(with_it) <= ratio * mean_ttft_s(without)


def test_loaded_blocks_are_not_computed_even_if_the_engine_was_full() -> None:
    for item in served(12.5e9, orders=True).history[16:]:
        assert item.transferred_tokens == item.hit_tokens == 24 * 512
