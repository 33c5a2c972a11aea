from collections.abc import Callable

import pytest

from simulator.sessions.hardware import SERVED_MODELS, Hardware
from simulator.sessions.migration import SessionMigration
from simulator.sessions.session_fleet import SessionFleet
from simulator.sessions.systems import SYSTEMS, system_named
from simulator.sessions.turn import Session, Turn
from simulator.virtual_clock import VirtualClock

MODEL = SERVED_MODELS["8b"]
CONTEXT = 20_000


class Bench:
    """A fleet of one system, sessions with caches on node 0, and the answered requests."""

    def __init__(self, system: str, *, dram_gb: float = 200.0, memory_tokens: int = MODEL.memory_tokens) -> None:
        self.clock = VirtualClock()
        self.answered: list[Turn] = []
        hardware = Hardware(dram_bytes=dram_gb * 1e9)
        self.fleet = SessionFleet(
            self.clock, system_named(system), MODEL, hardware, memory_tokens, self.answered.append
        )
        self._sessions = 0

    def session(self, context: int = CONTEXT, engine: int = 0, *, on_disk: bool = False) -> Session:
        self._sessions += 1
        session = Session(self._sessions, context)
        session.engine = engine
        self.fleet.tiers.place(session, self.fleet.engines[engine].node)
        if on_disk:
            self.fleet.tiers.hosts[session.disk_node].drop(session.session_id)
        return session

    def ask(self, session: Session, answer: int = 2) -> Turn:
        turn = Turn(session, 10, answer, self.clock.now)
        self.fleet.arrive(turn)
        return turn

    def keep_busy(self, engine: int, requests: int = 8, context: int = CONTEXT) -> None:
        """Bind long requests to an engine, whatever the system would choose."""
        choose = self.fleet._choose
        self.fleet._choose = lambda *_: (self.fleet.engines[engine], False)  # type: ignore[method-assign]
        for _ in range(requests):
            self.ask(self.session(context, engine), answer=2_000)
        self.fleet._choose = choose  # type: ignore[method-assign]

    def run(self, seconds: float) -> None:
        self.clock.run(self.clock.now + seconds)
        self.fleet.check()


def served_by(turn: Turn) -> int:
    assert turn.session.engine is not None
    return turn.session.engine


def test_recompute_chooses_the_engine_with_the_fewest_requests_and_loads_nothing() -> None:
    bench = Bench("recompute")
    bench.keep_busy(0)
    turn = bench.ask(bench.session(engine=0))
    assert turn.recompute
    assert served_by(turn) == 1
    bench.run(20.0)
    assert not any(engine.load_link.carried_bytes for engine in bench.fleet.engines)


def test_sticky_keeps_the_engine_of_the_session_however_busy() -> None:
    bench = Bench("sticky")
    bench.keep_busy(2)
    turn = bench.ask(bench.session(engine=2))
    assert served_by(turn) == 2
    assert not turn.recompute


def test_sticky_recomputes_a_cache_that_left_dram() -> None:
    bench = Bench("sticky")
    assert bench.ask(bench.session(on_disk=True)).recompute


def test_a_new_session_starts_on_the_engine_with_the_fewest_requests() -> None:
    bench = Bench("sticky")
    bench.keep_busy(0, requests=1)
    new = Session(99)
    assert served_by(bench.ask(new)) == 1


def test_migrate_moves_running_requests_from_the_busiest_engine_to_an_idle_one() -> None:
    bench = Bench("migrate")
    SessionMigration(bench.fleet).start()
    bench.keep_busy(0, requests=6)
    bench.run(30.0)
    counts = [engine.bound_requests for engine in bench.fleet.engines]
    assert max(counts) - min(counts) < 3
    bench.run(200.0)
    assert len(bench.answered) == 6
    assert not any(engine.memory.active_tokens for engine in bench.fleet.engines)


def test_the_lossy_store_serves_any_engine_and_pays_for_decompression() -> None:
    bench = Bench("lossy_store")
    bench.keep_busy(0, requests=1)
    turn = bench.ask(bench.session(engine=0))
    assert served_by(turn) == 1
    assert turn.step_extra_s == pytest.approx(CONTEXT * 10e-6)
    bench.run(5.0)
    assert bench.fleet.engines[1].load_link.carried_bytes == pytest.approx(CONTEXT * 131_072 / 3.5)


def test_symphony_serves_on_the_engine_chosen_by_its_advisory() -> None:
    bench = Bench("symphony")
    session = bench.session(engine=7)
    bench.fleet.advise(session, 11.0)
    bench.keep_busy(0)
    bench.run(5.0)
    turn = bench.ask(session)
    assert served_by(turn) == 0
    bench.run(60.0)
    assert turn.first_token_s is not None


def test_symphony_spreads_advisories_by_request_count() -> None:
    bench = Bench("symphony")
    sessions = [bench.session(engine=0) for _ in range(8)]
    for session in sessions:
        bench.fleet.advise(session, 11.0)
    assert [bench.fleet.advised.sessions_at(engine) for engine in range(8)] == [1] * 8


def test_symphony_without_an_advisory_stays_at_home() -> None:
    bench = Bench("symphony")
    bench.keep_busy(3)
    assert served_by(bench.ask(bench.session(engine=3))) == 3


def test_on_demand_ignores_advisories_and_balances_kv_tokens() -> None:
    bench = Bench("ondemand")
    session = bench.session(engine=0)
    bench.fleet.advise(session, 11.0)
    assert not len(bench.fleet.advised)
    for engine in range(1, 8):
        bench.keep_busy(engine, requests=2, context=1_000)
    bench.keep_busy(0, requests=1, context=120_000)
    assert served_by(bench.ask(session)) != 0


def test_on_demand_recomputes_if_the_disk_has_a_long_queue() -> None:
    bench = Bench("ondemand")
    long = [bench.session(100_000, on_disk=True) for _ in range(12)]
    for session in long:
        bench.fleet.tiers.fill(session, 0, urgent=True)
    assert bench.ask(bench.session(900, on_disk=True)).recompute
    waits = Bench("ondemand_load")
    for session in [waits.session(100_000, on_disk=True) for _ in range(12)]:
        waits.fleet.tiers.fill(session, 0, urgent=True)
    assert not waits.ask(waits.session(900, on_disk=True)).recompute


def test_our_system_has_the_cache_in_the_engine_before_the_request() -> None:
    bench = Bench("ours")
    session = bench.session(on_disk=True)
    bench.fleet.advise(session, 11.0)
    bench.run(5.0)
    turn = bench.ask(session)
    bench.run(1.0)
    on_demand = Bench("ondemand")
    late = on_demand.ask(on_demand.session(on_disk=True))
    on_demand.run(2.0)
    assert turn.first_token_s is not None
    assert late.first_token_s is not None
    assert turn.first_token_s - turn.arrived_s < 0.03
    assert late.first_token_s - late.arrived_s > 0.5
    assert bench.fleet.tiers.use.wasted_bytes == 0.0


def test_our_system_starts_no_prefetch_that_would_arrive_too_late() -> None:
    bench = Bench("ours")
    bench.fleet.advise(bench.session(on_disk=True), 0.1)
    assert not bench.fleet.tiers.fills
    backlog = Bench("ours")
    for _ in range(3):
        backlog.fleet.tiers.fill(backlog.session(100_000, on_disk=True), 0, urgent=True)
    backlog.fleet.advise(backlog.session(100_000, on_disk=True), 11.0)
    assert len(backlog.fleet.tiers.fills) == 3


def test_our_system_leaves_an_advised_engine_that_has_become_much_more_expensive() -> None:
    bench = Bench("ours")
    session = bench.session(engine=0)
    bench.fleet.advise(session, 11.0)
    reserved = next(engine for engine in range(8) if bench.fleet.advised.sessions_at(engine))
    bench.keep_busy(reserved, requests=4, context=60_000)
    assert served_by(bench.ask(session)) != reserved


def test_our_system_stays_at_its_advised_engine_for_a_small_difference() -> None:
    bench = Bench("ours")
    session = bench.session(2_000, engine=0)
    bench.fleet.advise(session, 11.0)
    reserved = next(engine for engine in range(8) if bench.fleet.advised.sessions_at(engine))
    bench.keep_busy(reserved, requests=1, context=100)
    assert served_by(bench.ask(session)) == reserved


def test_an_advisory_without_a_request_expires_and_leaves_nothing_in_engine_memory() -> None:
    bench = Bench("ours")
    bench.fleet.advise(bench.session(), 11.0)
    assert any(engine.memory.prefetched for engine in bench.fleet.engines)
    bench.run(61.0)
    assert not any(engine.memory.prefetched for engine in bench.fleet.engines)
    assert not len(bench.fleet.advised)


@pytest.mark.parametrize("system", ["ours", "ondemand"])
def test_a_cache_fetched_from_another_node_moves(system: str) -> None:
    bench = Bench(system)
    session = bench.session(engine=0)
    fill = bench.fleet.tiers.fill(session, 1, urgent=True)
    bench.clock.run(0.001)
    assert fill is not None
    assert bench.fleet.tiers.hosts[1].tokens(session.session_id) == 0
    bench.run(5.0)
    assert [host.tokens(session.session_id) for host in bench.fleet.tiers.hosts] == [0, CONTEXT]


def test_symphony_copies_and_keeps_both() -> None:
    bench = Bench("symphony")
    session = bench.session(engine=0)
    bench.fleet.tiers.fill(session, 1, urgent=True)
    bench.run(5.0)
    assert [host.tokens(session.session_id) for host in bench.fleet.tiers.hosts] == [CONTEXT, CONTEXT]


def test_only_bytes_missing_on_a_node_are_transferred() -> None:
    bench = Bench("symphony")
    session = bench.session(engine=0)
    bench.fleet.tiers.fill(session, 1, urgent=True)
    bench.run(5.0)
    before = bench.fleet.tiers.nics[1].carried_bytes
    session.context_tokens += 100
    bench.fleet.tiers.hosts[0].put(session.session_id, session.context_tokens)
    bench.fleet.tiers.fill(session, 1, urgent=True)
    bench.run(5.0)
    assert bench.fleet.tiers.nics[1].carried_bytes - before == pytest.approx(100 * 131_072)


def test_a_turn_is_written_to_dram_and_then_to_the_disk_of_its_session() -> None:
    bench = Bench("ours")
    session = bench.session(engine=0)
    bench.ask(session)
    bench.run(10.0)
    assert session.context_tokens == CONTEXT + 12
    assert session.disk_tokens == session.context_tokens
    assert max(host.tokens(session.session_id) for host in bench.fleet.tiers.hosts) == session.context_tokens


def test_requests_wait_for_engine_memory_in_order() -> None:
    bench = Bench("sticky", memory_tokens=30_000)
    first, second = bench.ask(bench.session(engine=0), answer=50), bench.ask(bench.session(engine=0))
    assert len(bench.fleet.engines[0].waiting) == 1
    bench.run(20.0)
    assert first.finished_s is not None
    assert second.first_token_s is not None
    assert second.first_token_s > first.finished_s


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system_answers_and_leaves_no_state_behind(system: str) -> None:
    bench = Bench(system, dram_gb=20.0)
    sessions = [bench.session(1_000 * (number + 1), engine=number % 8) for number in range(12)]
    for session in sessions[::2]:
        bench.fleet.advise(session, 11.0)
    asks: list[Callable[[], object]] = [lambda session=session: bench.ask(session, answer=20) for session in sessions]  # type: ignore[misc]
    for number, ask in enumerate(asks):
        bench.clock.at(2.0 + number * 0.05, ask)
    bench.run(120.0)
    assert len(bench.answered) == len(sessions)
    for engine in bench.fleet.engines:
        assert (engine.bound_requests, engine.bound_tokens, engine.memory.active_tokens) == (0, 0, 0)
        assert not engine.memory.prefetched
    assert not len(bench.fleet.advised)
    assert not bench.fleet.tiers.fills


def test_a_newer_advisory_removes_the_prefetch_of_the_older_one() -> None:
    bench = Bench("symphony")
    session = bench.session(engine=0)
    bench.fleet.advise(session, 11.0)
    bench.keep_busy(0, requests=2)
    bench.run(1.0)
    bench.fleet.advise(session, 11.0)
    holding = [engine.engine_id for engine in bench.fleet.engines if engine.memory.prefetched]
    assert holding == [engine for engine in range(8) if bench.fleet.advised.sessions_at(engine)] != [0]


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


@pytest.mark.parametrize("after_s", [0.01, 5.0])
def test_a_withdrawn_advisory_leaves_no_reservation_and_no_prefetch(after_s: float) -> None:
    bench = Bench("ours")
    session = bench.session(on_disk=True)
    bench.fleet.advise(session, 11.0)
    assert bench.fleet.tiers.fills
    bench.run(after_s)
    bench.fleet.invalidate(session)
    bench.fleet.invalidate(session)
    assert not len(bench.fleet.advised)
    assert not bench.fleet.tiers.fills
    assert not any(engine.memory.prefetched for engine in bench.fleet.engines)
    turn = bench.ask(session)
    bench.run(20.0)
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
    assert list(bench.fleet.engines[0].waiting) == [waiting[1], waiting[3], waiting[0], waiting[2]]
