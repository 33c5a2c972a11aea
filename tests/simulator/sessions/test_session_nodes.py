import pytest

from routing.advisories.advised_routing import Staging
from routing.values.load_options import Fetch
from simulator.link import Transfer
from simulator.sessions.turn import BLOCK_TOKENS, Session, Turn
from tests.simulator.sessions.session_bench import CONTEXT, KV_BYTES, SOON, Bench, served_by


def test_on_demand_computes_what_would_wait_behind_the_loads_that_it_has_ordered() -> None:
    recomputed = {}
    for system in ("ondemand", "ondemand_load"):
        bench = Bench(system)
        # One load first, so that the router has measured link and disk.
        bench.ask(bench.session(20_480, on_disk=True))
        bench.run(5.0)
        for _ in range(12):
            bench.ask(bench.session(99_840, on_disk=True))
        recomputed[system] = bench.ask(bench.session(1_280, on_disk=True)).loaded_tokens == 0
    assert recomputed == {"ondemand": True, "ondemand_load": False}


def test_a_load_that_takes_much_longer_than_computing_is_stopped_and_computed() -> None:
    bench = Bench("ondemand")
    for number in range(8):
        # Computed, so that every engine knows how long that takes.
        bench.ask(Session(900 + number, 4_096))
    bench.ask(bench.session())
    bench.run(5.0)
    # Bytes of which the router knows nothing, for 15 s.
    Transfer([bench.fleet.nodes.disks["node-1"]], 60e9, lambda _: None, urgent=True).start()
    turn = bench.ask(bench.session(on_disk=True))
    assert (turn.loaded_tokens, turn.source) == (CONTEXT, "node-1")
    bench.run(60.0)
    assert turn.loaded_tokens == 0
    assert turn.first_token_s is not None
    computed_s = CONTEXT * 0.11e-3
    assert 3 * computed_s < turn.first_token_s - turn.arrived_s < 15.0


def test_a_staged_cache_is_copied_and_both_copies_stay() -> None:
    bench = Bench("ours")
    session = bench.session(engine=0)
    keys = session.keys(CONTEXT)
    bench.fleet.nodes.stage(session, Staging("node-1", "node-2", keys, 0.2, 0.2), SOON)
    bench.clock.run(0.001)
    assert bench.dram_tokens(session) == [CONTEXT, 0]
    bench.run(5.0)
    assert bench.dram_tokens(session) == [CONTEXT, CONTEXT]
    assert bench.fleet.nodes.nics["node-2"].carried_bytes == pytest.approx(CONTEXT * KV_BYTES)


def test_a_stopped_move_keeps_the_blocks_that_have_arrived() -> None:
    bench = Bench("ours")
    session = bench.session(on_disk=True)
    bench.fleet.nodes.stage(session, Staging("node-1", "node-1", session.keys(CONTEXT), 0.7, 0.7), SOON)
    bench.run(0.3)
    bench.fleet.nodes.end_move(session)
    bench.run(5.0)
    assert 0 < bench.dram_tokens(session)[0] < CONTEXT
    assert not bench.fleet.nodes.backlog()


@pytest.mark.parametrize(("system", "reads"), [("symphony", 1.0), ("ours", 1.1)])
def test_a_request_of_symphony_waits_for_the_move_in_progress_and_one_of_ours_loads_the_rest(
    system: str, reads: float
) -> None:
    bench = Bench(system)
    session = bench.session(on_disk=True)
    bench.fleet.advise(session, 11.0)
    bench.run(0.3)
    assert bench.fleet.nodes.backlog()
    turn = bench.ask(session)
    bench.run(5.0)
    assert turn.loaded_tokens == CONTEXT
    assert turn.first_token_s is not None
    assert turn.first_token_s - turn.arrived_s < 0.6
    assert bench.disk_bytes() == pytest.approx(reads * CONTEXT * KV_BYTES, rel=0.08)


def test_only_the_delta_is_staged() -> None:
    bench = Bench("symphony")
    session = bench.session(engine=0)
    bench.fleet.nodes.stage(session, Staging("node-1", "node-2", session.keys(CONTEXT), 0.2, 0.2), SOON)
    bench.run(5.0)
    for engine in range(4):
        bench.keep_busy(engine, requests=1)
    before = bench.fleet.nodes.nics["node-2"].carried_bytes
    bench.ask(session, answer=2 * BLOCK_TOKENS)
    bench.run(5.0)
    session.engine = 0
    bench.fleet.advise(session, 11.0)
    bench.run(5.0)
    assert bench.fleet.nodes.nics["node-2"].carried_bytes - before <= 3 * BLOCK_TOKENS * KV_BYTES


def test_a_turn_is_written_to_dram_and_to_disk_on_the_node_of_its_engine() -> None:
    bench = Bench("ours")
    session = bench.session(engine=0)
    turn = bench.ask(session, answer=100)
    bench.run(10.0)
    blocks = (CONTEXT + 110) // BLOCK_TOKENS
    assert session.context_tokens == CONTEXT + 110
    node = bench.fleet.engines[served_by(turn)].node
    assert bench.fleet.nodes.dram_blocks(session, node) == blocks
    assert bench.disk_bytes() == pytest.approx((blocks * BLOCK_TOKENS - CONTEXT) * KV_BYTES)


def test_an_engine_of_ours_stores_what_it_computed_and_a_load_from_another_node_leaves_no_copy() -> None:
    bench = Bench("ours")
    session = bench.session(engine=0)
    turn = Turn(session, 10, 100, 0.0)
    turn.session.engine = 4
    turn.expect_load(CONTEXT, "node-1")
    bench.fleet.nodes.load(turn, bench.fleet.engines[4], 0, lambda _: None)
    bench.run(5.0)
    session.context_tokens = turn.memory_tokens
    bench.fleet.nodes.store_turn(turn, bench.fleet.engines[4])
    bench.run(5.0)
    assert bench.dram_tokens(session) == [CONTEXT, 0]
    assert bench.fleet.engines[4].load_link.carried_bytes == pytest.approx(CONTEXT * KV_BYTES)


@pytest.mark.parametrize("after_s", [0.01, 5.0])
@pytest.mark.parametrize("system", ["ours", "symphony"])
def test_a_withdrawn_advisory_leaves_no_reservation_and_no_prefetch(system: str, after_s: float) -> None:
    bench = Bench(system)
    session = bench.session(on_disk=True)
    bench.fleet.advise(session, 11.0)
    assert bench.fleet.nodes.backlog()
    bench.run(after_s)
    bench.fleet.invalidate(session)
    bench.fleet.invalidate(session)
    assert sum(bench.reserved()) == 0
    assert not bench.fleet.nodes.backlog()
    assert not any(engine.memory.prefetched for engine in bench.fleet.engines)
    turn = bench.ask(session)
    bench.run(20.0)
    assert turn.finished_s is not None


def test_a_decision_that_names_blocks_the_source_has_lost_is_computed() -> None:
    bench = Bench("ours")
    session = bench.session(engine=0)
    turn = Turn(session, 10, 2, 0.0)
    assert bench.fleet._way(turn, bench.fleet.engines[0], Fetch("", 312, 0.1, "node-2")) == (312, "node-2")
    turn.expect_load(CONTEXT, "node-2")
    assert bench.fleet.nodes.load(turn, bench.fleet.engines[0], 0, lambda _: None) is None
