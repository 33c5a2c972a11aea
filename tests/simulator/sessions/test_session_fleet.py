from functools import partial

import pytest

from kvstore.transactions.expected_blocks import Expected
from routing.advisories.advised_routing import Staging
from routing.values.decision import Fetch
from simulator.sessions.hardware import ENGINES, SERVED_MODELS, Hardware
from simulator.sessions.links import SessionTransfer
from simulator.sessions.migration import SessionMigration
from simulator.sessions.session_fleet import SessionFleet
from simulator.sessions.session_nodes import NODE_NAMES
from simulator.sessions.systems import SYSTEMS, system_named
from simulator.sessions.turn import BLOCK_TOKENS, Session, Turn
from simulator.virtual_clock import VirtualClock

MODEL = SERVED_MODELS["8b"]
CONTEXT = 312 * BLOCK_TOKENS
NAMES = [f"engine-{number + 1}" for number in range(ENGINES)]
KV_BYTES = 131_072
SOON = Expected(11.0, 60.0)


class Bench:
    """A fleet of one system, sessions with caches on node 0, and the answered requests."""

    def __init__(self, system: str, *, dram_gb: float = 200.0, memory_tokens: int = MODEL.num_blocks) -> None:
        self.clock = VirtualClock()
        self.answered: list[Turn] = []
        hardware = Hardware(dram_bytes=dram_gb * 1e9)
        self.fleet = SessionFleet(
            self.clock, system_named(system), MODEL, hardware, memory_tokens, self.answered.append
        )
        self._sessions = 0

    def session(self, context: int = CONTEXT, engine: int = 0, *, on_disk: bool = False) -> Session:
        self._sessions += 1
        session = Session(self._sessions, context, demoted=on_disk)
        self.fleet.join(session, engine)
        session.demoted = False
        return session

    def ask(self, session: Session, answer: int = 2) -> Turn:
        turn = Turn(session, 10, answer, self.clock.now)
        self.fleet.arrive(turn)
        return turn

    def send(self, session: Session) -> None:
        self.ask(session, answer=20)

    def keep_busy(self, engine: int, requests: int = 8, context: int = CONTEXT) -> None:
        """Send long requests to an engine, whatever the system would choose."""
        place, others = self.fleet.router.place, frozenset(NAMES) - {NAMES[engine]}
        self.fleet.router.place = partial(place, hold=False, excluded=others)  # type: ignore[method-assign]
        for _ in range(requests):
            self.ask(self.session(context, engine), answer=2_000)
        self.fleet.router.place = place  # type: ignore[method-assign]

    def reserved(self) -> list[int]:
        """Return how many announced sessions the router expects at each engine."""
        router = self.fleet.router
        return [router.advised.sessions.sessions_at(router.fleet.known_target(name)) for name in NAMES]

    def dram_tokens(self, session: Session) -> list[int]:
        return [self.fleet.nodes.dram_blocks(session, node) * BLOCK_TOKENS for node in NODE_NAMES]

    def disk_bytes(self) -> float:
        return sum(link.carried_bytes for link in self.fleet.nodes.disks.values())

    def run(self, seconds: float) -> None:
        self.clock.run(self.clock.now + seconds)
        self.fleet.check()


def served_by(turn: Turn) -> int:
    assert turn.session.engine is not None
    return turn.session.engine


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
    SessionTransfer([bench.fleet.nodes.disks["node-1"]], 60e9, lambda _: None, urgent=True).start()
    turn = bench.ask(bench.session(on_disk=True))
    assert (turn.loaded_tokens, turn.source) == (CONTEXT, "node-1")
    bench.run(60.0)
    assert turn.loaded_tokens == 0
    assert turn.first_token_s is not None
    computed_s = CONTEXT * 0.11e-3
    assert 3 * computed_s < turn.first_token_s - turn.arrived_s < 15.0


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


def test_requests_wait_for_engine_memory_in_order() -> None:
    bench = Bench("sticky", memory_tokens=30_000)
    first, second = bench.ask(bench.session(engine=0), answer=50), bench.ask(bench.session(engine=0))
    assert len(bench.fleet.engines[0].waiting) == 1
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


def test_a_decision_that_names_blocks_the_source_has_lost_is_computed() -> None:
    bench = Bench("ours")
    session = bench.session(engine=0)
    turn = Turn(session, 10, 2, 0.0)
    assert bench.fleet._way(turn, bench.fleet.engines[0], Fetch("", 312, 0.1, "node-2")) == (312, "node-2")
    turn.expect_load(CONTEXT, "node-2")
    assert bench.fleet.nodes.load(turn, bench.fleet.engines[0], 0, lambda _: None) is None
