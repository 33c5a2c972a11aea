"""Documents on one node only, requested faster than they are served: prefetch makes no request wait longer.

It is what `bench.kv.live --parts prefetch` sends to live processes, under the virtual clock.
"""

from random import Random

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
from simulator.workloads.trace import TraceRow

NODES = KvNodesSpec(nodes=2, dram_tokens=500_000, ssd_tokens=2_000_000)
SPEC = RunSpec(
    policy=evaluation_policy(Stage(name="mooncake"), Stage(name="fifo")),
    engines=4,
    engine_model="colocated",
    profile=EngineProfile(num_blocks=44, recompute_last_block=True),
    kv_nodes=NODES,
)


def asked_of(requests: int = 200, documents: int = 30, blocks: int = 20, gap_ms: float = 120.0) -> Workload:
    """Return questions about documents of varying popularity, which exceed the engines' memory."""
    random, ranks = Random(1), range(documents)
    asked = random.choices(ranks, [1 / (rank + 1) for rank in ranks], k=requests)
    return Workload(
        [
            TraceRow(
                timestamp=number * gap_ms,
                input_length=512 * (blocks + 1),
                output_length=8,
                hash_ids=(*(1000 * document + block for block in range(blocks)), 10**6 + number),
            )
            for number, document in enumerate(asked)
        ]
    )


def ran(spec: RunSpec, workload: Workload | None = None) -> FleetSimulation:
    simulation = run(spec, workload or asked_of())
    simulation.check()
    return simulation


def mean_ttft(simulation: FleetSimulation) -> float:
    ttfts = [item.ttft_s for item in simulation.history if item.ttft_s is not None]
    return sum(ttfts) / len(ttfts)


def nodes_of(simulation: FleetSimulation):  # type: ignore[no-untyped-def]  # the fleet's nodes, which are there
    assert simulation.nodes is not None
    return simulation.nodes


def test_blocks_that_engines_evicted_are_loaded_and_first_tokens_arrive_sooner() -> None:
    with_nodes, without = ran(SPEC), ran(replace(SPEC, kv_nodes=None))
    assert nodes_of(with_nodes).loads > 20
    assert mean_ttft(with_nodes) < 0.7 * mean_ttft(without)
    assert sum(item.transferred_tokens for item in with_nodes.history) == 512 * nodes_of(with_nodes).loaded_blocks


def test_links_carry_the_loaded_bytes_and_never_exceed_their_rate() -> None:
    nodes = nodes_of(ran(replace(SPEC, kv_nodes=replace(NODES, orders=False))))
    links = [*nodes.uplinks.values(), *nodes.own_links.values()]
    carried = sum(link.carried_bytes for link in links)
    assert carried == nodes.loaded_blocks * 512 * SPEC.profile.kv_bytes_per_token
    assert all(link.carried_bytes <= link.bytes_per_s * link.free_at + 1 for link in links)


def test_a_slow_link_is_avoided_once_its_rate_is_known() -> None:
    slow = replace(SPEC, profile=replace(SPEC.profile, link_bytes_per_s=1e7))
    nodes = nodes_of(ran(replace(slow, kv_nodes=replace(NODES, orders=False))))
    far = sum(link.carried_bytes for link in nodes.uplinks.values())
    fast = nodes_of(ran(replace(SPEC, kv_nodes=replace(NODES, orders=False))))
    assert far < 0.3 * sum(link.carried_bytes for link in fast.uplinks.values())


def test_ssd_reads_have_a_separately_learned_cost() -> None:
    """DRAM holds a fifth of the documents and SSD all; reads from SSD are learned at their real speed."""
    tiers = replace(NODES, dram_tokens=30_000, ssd_bytes_per_s=1e9, orders=False)
    nodes = nodes_of(ran(replace(SPEC, kv_nodes=tiers)))
    assert any(disk.carried_bytes for disk in nodes.disks.values())
    read = [node for node in nodes.names if nodes.ledger.ssd_rate(node).loads > 5]
    assert read
    assert all(nodes.ledger.ssd_rate(node).s_per_byte > 1 / 2e9 for node in read)


def test_orders_move_documents_to_the_engines_node_and_report_the_savings() -> None:
    nodes = nodes_of(ran(SPEC))
    worth = nodes.worth
    assert worth.prefetches + worth.replicas > 0
    assert worth.prefetch_saved_tokens + worth.replica_saved_tokens > 0
    none = nodes_of(ran(replace(SPEC, kv_nodes=replace(NODES, orders=False))))
    assert none.worth.moved_blocks == 0


def test_the_same_seed_produces_the_same_run() -> None:
    one, other = ran(SPEC), ran(SPEC)
    assert [item.first_token_s for item in one.history] == [item.first_token_s for item in other.history]


def test_engines_that_join_get_a_node_and_engines_that_leave_do_no_harm() -> None:
    changes = (EngineDies(10.0, "e-002"), EngineJoins(20.0, "e-009", 1.0))
    simulation = ran(replace(SPEC, changes=changes))
    assert simulation.unfinished == 0
    assert sum(item.finished_s is not None for item in simulation.history) > 190
    assert set(nodes_of(simulation).ledger.homes) == {"e-001", "e-003", "e-004", "e-009"}


def test_loads_behind_several_gateways_end_as_behind_one() -> None:
    simulation = ran(replace(SPEC, gateways=2))
    assert simulation.unfinished == 0
    assert nodes_of(simulation).loads > 20


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
