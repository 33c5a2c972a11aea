"""A hot prefix held by one node only, next to prompts that evict it from engines: replicas lower its TTFT.

It is what `bench.kv.live --parts replicas` plants on live processes, under the virtual clock.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bench.kv.live import hot_and_others, planted_prefix
from planning.kv_moves.replica_count import COLD_S
from routing.policy.policy_document import Stage
from simulator.engine_models.engine_profile import EngineProfile
from simulator.fleet.fleet_changes import EngineDies, EngineJoins
from simulator.fleet.fleet_simulation import FleetSimulation
from simulator.kv_nodes import fleet_nodes
from simulator.kv_nodes.fleet_nodes import FleetNodes
from simulator.kv_nodes.kv_nodes_spec import KvNodesSpec
from simulator.runs.simulation_run import RunSpec, evaluation_policy, run
from simulator.workloads.prepared_workload import Workload
from simulator.workloads.trace import TraceRow

BASE, SECONDS, BEGINS_MS = 10_000_000, 60, 20_000


@pytest.fixture(autouse=True)
def without_prefetch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Move blocks by replication only, as in the bench."""
    monkeypatch.setattr(fleet_nodes, "prefetch", lambda *_: None)


def later(rows: list[TraceRow], by_ms: float) -> list[TraceRow]:
    return [replace(row, timestamp=row.timestamp + by_ms) for row in rows]


def fleet(
    rows: list[TraceRow], *, orders: bool, link_bytes_per_s: float = 3.125e9, whole: bool = False
) -> tuple[FleetSimulation, FleetNodes]:
    """Serve rows by three engines at home on node 2, after an engine on node 1 computed the prefix and died.

    A fourth one, too slow for anything, keeps its place on node 1.
    """
    joining = [EngineJoins(10.0, "e-000", 0.001), *(EngineJoins(10.0, f"e-00{number}", 1.0) for number in (2, 3, 4))]
    spec = RunSpec(
        policy=evaluation_policy(Stage(name="mooncake"), Stage(name="fifo")),
        engines=1,
        engine_model="colocated",
        profile=EngineProfile(recompute_last_block=not whole, num_blocks=32, link_bytes_per_s=link_bytes_per_s),
        kv_nodes=KvNodesSpec(nodes=2, dram_tokens=5_000_000, homes=(0, 1, 1, 1), orders=orders),
        changes=(EngineDies(10.0, "e-001"), *joining),
    )
    simulation = run(spec, Workload([planted_prefix(BASE), *sorted(rows, key=lambda row: row.timestamp)]))
    simulation.check()
    assert simulation.nodes is not None
    return simulation, simulation.nodes


def p90_ttft_s(simulation: FleetSimulation, rows: list[TraceRow]) -> float:
    hot = [
        record.ttft_s
        for record, row in zip(simulation.history[1:], sorted(rows, key=lambda row: row.timestamp), strict=True)
        if row.hash_ids[0] == BASE and record.ttft_s is not None
    ]
    assert len(hot) >= SECONDS
    return sorted(hot)[int(0.9 * len(hot))]


@pytest.mark.parametrize("link_bytes_per_s", [12.5e9, 3.125e9, 1e9])
def test_a_replica_lowers_the_hot_prompts_p90_ttft(link_bytes_per_s: float) -> None:
    hot, others = hot_and_others(BASE, SECONDS)
    rows = later([*hot, *others], BEGINS_MS)
    with_it, replicated = fleet(rows, orders=True, link_bytes_per_s=link_bytes_per_s)
    without, alone = fleet(rows, orders=False, link_bytes_per_s=link_bytes_per_s)
    assert (replicated.worth.replicas, alone.worth.replicas) == (1, 0)
    assert replicated.worth.replica_saved_tokens > 0
    assert p90_ttft_s(with_it, rows) < 0.95 * p90_ttft_s(without, rows)
    assert replicated.uplinks["kv-1"].carried_bytes < 0.5 * alone.uplinks["kv-1"].carried_bytes


def test_a_cold_replica_is_dropped_and_the_first_copy_stays() -> None:
    """All requests are equal, so no block follows the prefix on the second node; a block with a successor stays."""
    asked, others = hot_and_others(BASE, SECONDS)
    hot = [replace(row, hash_ids=planted_prefix(BASE).hash_ids, input_length=row.input_length - 512) for row in asked]
    _, still = hot_and_others(BASE + 500_000, int(COLD_S) + 60)
    _, nodes = fleet(
        [*later([*hot, *others], BEGINS_MS), *later(still, BEGINS_MS + 1000 * SECONDS)], orders=True, whole=True
    )
    keys = Workload([planted_prefix(BASE)]).keys[0]
    assert nodes.worth.replicas == 1
    assert nodes.worth.freed_blocks > 0
    assert nodes.caches["kv-1"].holds(keys).blocks == len(keys)
    assert nodes.caches["kv-2"].holds(keys).blocks < len(keys)
