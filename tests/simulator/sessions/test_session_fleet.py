import pytest

from simulator.sessions.migration import SessionMigration
from simulator.sessions.systems import SYSTEMS
from simulator.sessions.turn import Session, Turn
from tests.simulator.sessions.session_bench import CONTEXT, KV_BYTES, NAMES, Bench, served_by


def test_recompute_chooses_the_engine_with_the_fewest_requests_and_loads_nothing() -> None:
    bench = Bench("recompute")
    for engine in (*range(4), *range(5, 8)):
        bench.keep_busy(engine, requests=1)
    turn = bench.ask(bench.session(engine=0))
    assert turn.loaded_tokens == 0
    assert served_by(turn) == 4
    bench.run(20.0)
    assert not any(engine.load_link.carried_bytes for engine in bench.fleet.engines)


def test_sticky_keeps_the_engine_of_the_session_however_busy() -> None:
    bench = Bench("sticky")
    bench.keep_busy(2)
    turn = bench.ask(bench.session(engine=2))
    assert served_by(turn) == 2
    assert turn.loaded_tokens == CONTEXT


def test_sticky_recomputes_a_cache_that_left_dram() -> None:
    bench = Bench("sticky", dram_gb=3.0)
    first = bench.session()
    for _ in range(2):
        bench.session()
    assert bench.ask(first).loaded_tokens < CONTEXT / 2


def test_a_new_session_starts_on_the_engine_with_the_fewest_requests() -> None:
    bench = Bench("sticky")
    for engine in range(7):
        bench.keep_busy(engine, requests=1)
    assert served_by(bench.ask(Session(99))) == 7


def test_migrate_moves_running_requests_from_the_busiest_engine_to_an_idle_one() -> None:
    bench = Bench("migrate")
    SessionMigration(bench.fleet).start()
    bench.keep_busy(0, requests=6)
    bench.run(30.0)
    counts = bench.fleet.bound_requests()
    assert max(counts) - min(counts) < 3
    router = bench.fleet.router
    assert [router.view.load.in_flight_requests[router.fleet.known_target(name)] for name in NAMES] == counts
    bench.run(200.0)
    assert len(bench.answered) == 6
    assert not any(engine.memory.active_tokens for engine in bench.fleet.engines)


def test_a_migrated_session_returns_to_its_new_engine() -> None:
    bench = Bench("migrate")
    SessionMigration(bench.fleet).start()
    bench.keep_busy(0, requests=6)
    bench.run(200.0)
    moved = next(turn.session for turn in bench.answered if served_by(turn) != 0)
    assert served_by(bench.ask(moved)) == moved.engine != 0


def test_the_lossy_store_serves_any_engine_and_pays_for_decompression() -> None:
    bench = Bench("lossy_store")
    for engine in (0, *range(2, 8)):
        bench.keep_busy(engine, requests=1)
    before = bench.fleet.engines[1].load_link.carried_bytes
    turn = bench.ask(bench.session(engine=0))
    assert served_by(turn) == 1
    assert turn.step_extra_s == pytest.approx(CONTEXT * 10e-6)
    bench.run(5.0)
    assert bench.fleet.engines[1].load_link.carried_bytes - before == pytest.approx(CONTEXT * KV_BYTES / 3.5)


def test_symphony_serves_on_the_engine_chosen_by_its_advisory() -> None:
    bench = Bench("symphony")
    session = bench.session(engine=7)
    bench.fleet.advise(session, 11.0)
    (engine,) = [number for number, sessions in enumerate(bench.reserved()) if sessions]
    bench.keep_busy(engine)
    bench.run(5.0)
    turn = bench.ask(session)
    assert served_by(turn) == engine
    bench.run(60.0)
    assert turn.first_token_s is not None


def test_symphony_spreads_advisories_by_request_count() -> None:
    bench = Bench("symphony")
    for session in [bench.session(engine=0) for _ in range(8)]:
        bench.fleet.advise(session, 11.0)
    assert bench.reserved() == [1] * 8


def test_symphony_without_an_advisory_stays_at_home() -> None:
    bench = Bench("symphony")
    bench.keep_busy(3)
    assert served_by(bench.ask(bench.session(engine=3))) == 3


def test_on_demand_ignores_advisories_and_avoids_engines_that_decode_much() -> None:
    bench = Bench("ondemand")
    session = bench.session(engine=0)
    bench.fleet.advise(session, 11.0)
    assert bench.reserved() == [0] * 8
    assert not bench.fleet.router.advised.sessions
    bench.keep_busy(0, requests=30, context=6_400)
    bench.run(5.0)
    assert served_by(bench.ask(session)) != 0


def test_our_system_has_the_cache_in_dram_before_the_request() -> None:
    bench = Bench("ours")
    session = bench.session(on_disk=True)
    bench.fleet.advise(session, 11.0)
    assert max(bench.dram_tokens(session)) == 0, "blocks count once they have arrived"
    bench.run(5.0)
    assert max(bench.dram_tokens(session)) == CONTEXT
    turn = bench.ask(session)
    bench.run(1.0)
    on_demand = Bench("ondemand")
    late = on_demand.ask(on_demand.session(on_disk=True))
    on_demand.run(2.0)
    assert turn.first_token_s is not None
    assert late.first_token_s is not None
    assert turn.first_token_s - turn.arrived_s < 0.2
    assert late.first_token_s - late.arrived_s > 0.5
    assert bench.fleet.nodes.use.wasted_bytes == 0.0
    assert not any(engine.memory.prefetched for engine in bench.fleet.engines), "only DRAM, as in production"


def test_symphony_has_the_cache_in_the_engine_before_the_request() -> None:
    bench = Bench("symphony")
    session = bench.session(on_disk=True)
    bench.fleet.advise(session, 11.0)
    bench.run(5.0)
    turn = bench.ask(session)
    bench.run(1.0)
    assert turn.first_token_s is not None
    assert turn.first_token_s - turn.arrived_s < 0.03


def test_our_system_starts_no_prefetch_that_would_arrive_too_late() -> None:
    bench = Bench("ours")
    bench.fleet.advise(bench.session(on_disk=True), 0.1)
    assert not bench.fleet.nodes.backlog()
    backlog = Bench("ours")
    for _ in range(12):
        backlog.fleet.advise(backlog.session(20_480, on_disk=True), 11.0)
    bench.run(0.1)
    assert 0 < max(backlog.fleet.nodes.backlog().values()) < 4.0
    assert backlog.disk_bytes() == 0.0
    backlog.run(20.0)
    assert 0 < backlog.disk_bytes() < 12 * 20_480 * KV_BYTES


def test_our_system_leaves_an_advised_engine_that_has_become_much_more_expensive() -> None:
    bench = Bench("ours")
    session = bench.session(engine=0)
    bench.fleet.advise(session, 11.0)
    reserved = bench.reserved().index(1)
    bench.keep_busy(reserved, requests=4, context=60_032)
    assert served_by(bench.ask(session)) != reserved


def test_our_system_stays_at_its_advised_engine_for_a_small_difference() -> None:
    bench = Bench("ours")
    session = bench.session(2_048, engine=0)
    bench.fleet.advise(session, 11.0)
    reserved = bench.reserved().index(1)
    bench.keep_busy(reserved, requests=1, context=128)
    assert served_by(bench.ask(session)) == reserved


@pytest.mark.parametrize("system", ["ours", "symphony"])
def test_an_advisory_without_a_request_expires_and_leaves_nothing_in_engine_memory(system: str) -> None:
    bench = Bench(system)
    bench.fleet.advise(bench.session(), 11.0)
    assert sum(bench.reserved()) == 1
    assert any(engine.memory.prefetched for engine in bench.fleet.engines) == (system == "symphony")
    bench.run(61.0)
    assert not any(engine.memory.prefetched for engine in bench.fleet.engines)
    assert sum(bench.reserved()) == 0


def test_a_session_without_an_earlier_request_is_unknown_to_advisories() -> None:
    bench = Bench("symphony")
    bench.fleet.advise(Session(99), 11.0)
    assert sum(bench.reserved()) == 0


def test_requests_wait_for_engine_memory_in_order() -> None:
    bench = Bench("sticky", memory_tokens=30_000)
    first, second = bench.ask(bench.session(engine=0), answer=50), bench.ask(bench.session(engine=0))
    assert len(bench.fleet.engines[0].unplaced) == 1
    bench.run(20.0)
    assert first.finished_s is not None
    assert second.first_token_s is not None
    assert second.first_token_s > first.finished_s


def test_a_request_that_queues_at_the_gateway_is_dispatched_later() -> None:
    bench = Bench("ondemand")
    turns = [bench.ask(bench.session(0, engine=0), answer=50) for _ in range(4)]
    for turn in turns:
        turn.session.context_tokens = 0
    long = [bench.ask(Session(100 + number, 60_000), answer=5) for number in range(20)]
    assert bench.fleet.router.waiting
    bench.run(300.0)
    assert all(turn.finished_s is not None for turn in long)
    assert not bench.fleet.router.waiting


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system_answers_and_leaves_no_state_behind(system: str) -> None:
    bench = Bench(system, dram_gb=20.0)
    sessions = [bench.session(1_000 * (number + 1), engine=number % 8) for number in range(12)]
    for session in sessions[::2]:
        bench.fleet.advise(session, 11.0)
    for number, session in enumerate(sessions):
        bench.clock.at(2.0 + number * 0.05, bench.send, session)
    bench.run(120.0)
    assert len(bench.answered) == len(sessions)
    for engine in bench.fleet.engines:
        assert (engine.bound_requests, engine.memory.active_tokens) == (0, 0)
        assert not engine.memory.prefetched
    assert sum(bench.reserved()) == 0
    assert not bench.fleet.nodes.backlog()
    assert not len(bench.fleet.router.reservations)


def test_a_newer_advisory_removes_the_prefetch_of_the_older_one() -> None:
    bench = Bench("symphony")
    session = bench.session(engine=0)
    bench.fleet.advise(session, 11.0)
    before = bench.reserved().index(1)
    bench.keep_busy(before, requests=2)
    bench.run(1.0)
    bench.fleet.advise(session, 11.0)
    holding = [engine.engine_id for engine in bench.fleet.engines if engine.memory.prefetched]
    assert holding == [bench.reserved().index(1)] != [before]


def test_a_pinned_prefetch_admits_a_request_once_its_reservation_has_ended() -> None:
    bench = Bench("symphony_pinned", memory_tokens=30_000)
    for _ in range(8):
        bench.fleet.advise(bench.session(), 11.0)
    bench.run(5.0)
    bench.ask(bench.session(500, engine=3), answer=5_000)
    turn = bench.ask(bench.session(engine=3))
    bench.run(50.0)
    assert turn.first_token_s is None
    bench.run(10.0)
    assert turn.finished_s is not None


def test_priority_requests_get_memory_first_and_each_class_keeps_its_order() -> None:
    bench = Bench("recompute", memory_tokens=2 * CONTEXT)
    bench.keep_busy(0, requests=1)
    waiting = []
    for first in (False, True, False, True):
        session = bench.session()
        session.priority = first
        turn = Turn(session, 10, 2, bench.clock.now)
        bench.fleet.engines[0].wait(turn)
        waiting.append(turn)
    assert list(bench.fleet.engines[0].unplaced) == [waiting[1], waiting[3], waiting[0], waiting[2]]
