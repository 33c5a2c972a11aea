"""Execution of move orders: within limits, urgent ones first, and only while they are needed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence, Set
from contextlib import asynccontextmanager

import pytest
from typing_extensions import override

from gateway.base.metrics import GatewayMetrics
from gateway.contracts.kv_move import FAILED, FREED, KEPT, MISSING, MOVED, Ending, KvMoveRow
from gateway.contracts.snapshot import KvNodeEntry
from gateway.kv.moves.block_mover import PART_BLOCKS, Mover, Part
from gateway.kv.moves.freed_copies import MISSED_S
from gateway.kv.moves.kv_moves import MAX_PER_TARGET, MAX_UNDER_WAY, MAX_WAITING, MoveScheduler
from gateway.kv.nodes.kv_nodes import KvNodes
from kvstore.transfer.flow_control import FlowPriority
from kvstore.transfer.shared_secret import NodeAccess
from planning.kv_moves.kv_move import ADVISORY, PREFETCH, REPLICATE, SHRINK, KvMove, Planner
from planning.kv_moves.planner_trust import TRIAL_S
from planning.kv_moves.replica_count import COLD_S
from tests.patience import until

BLOCK = 1000


class SlowMover(Mover):
    """Move a part only when released. Mutable: the received calls, under a lock."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, int, FlowPriority]] = []
        self.shrunk: list[tuple[str, str, int, int]] = []
        self.outcomes: dict[int, Ending] = {}
        """Outcomes by the first key of a part."""
        self._turns = threading.Semaphore(0)
        self._lock = threading.Lock()
        self.closed = False

    def let(self, parts: int) -> None:
        self._turns.release(parts)

    @override
    def move(
        self, source: str, target: str, keys: Sequence[int], priority: FlowPriority, expected_s: float = 0.0
    ) -> Part:
        with self._lock:
            self.asked.append((source, target, keys[0], priority))
        assert self._turns.acquire(timeout=30), "the test gave this move no turn"
        outcome = self.outcomes.get(keys[0], MOVED)
        came = tuple(keys) if outcome == MOVED else ()
        return Part(came, BLOCK * len(came), outcome)

    @override
    def shrink(self, keeper: str, target: str, keys: Sequence[int]) -> Part:
        with self._lock:
            self.shrunk.append((keeper, target, keys[0], keys[-1]))
        kept = self.outcomes.get(keys[0], FREED) == KEPT
        return Part((), 0, KEPT) if kept else Part(tuple(keys), BLOCK * len(keys), FREED)

    @override
    def close(self) -> None:
        self.closed = True


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Asked:
    """Orders between nodes a to d, with a mover and a clock."""

    def __init__(self) -> None:
        self.metrics, self.mover, self.clock = GatewayMetrics(), SlowMover(), Clock()
        nodes = self.nodes = KvNodes(NodeAccess(), self.metrics)
        nodes.entries = {name: KvNodeEntry(name=name, address=f"{name}:1") for name in "abcd"}
        self.orders = MoveScheduler(
            nodes, NodeAccess(), self.metrics, mover=self.mover, clock=self.clock, wall=lambda: 1e9
        )

    def ask(
        self, first: int, target: str = "b", planner: Planner = PREFETCH, blocks: int = 3, request: str = ""
    ) -> bool:
        """Order blocks with these keys; without `request` a prefetch gets a generated request name."""
        move = KvMove(planner, "a", target, tuple(range(first, first + blocks)), 0.01)
        request = request or (f"r-{first}" if planner == PREFETCH else "")
        return self.orders.ask(move, "pool", 16, self.clock.now, request)

    def counted(self, planner: str, outcome: str) -> float:
        return self.metrics.kv_moves.value(planner, outcome)

    def rows(self) -> list[KvMoveRow]:
        return self.orders.book.take_rows(1000)


@asynccontextmanager
async def asked() -> AsyncIterator[Asked]:
    made = Asked()
    try:
        yield made
    finally:
        made.mover.let(10_000)
        await made.orders.stop()
        assert made.mover.closed
        assert len(made.orders) == 0
        made.orders.book.check()


async def test_concurrent_moves_are_limited_in_total_and_further_per_node() -> None:
    async with asked() as made:
        for number, target in enumerate("bbbbccccdddd"):
            assert made.ask(100 * number + 1, target)
        await until(lambda: len(made.mover.asked) == MAX_UNDER_WAY)
        targets = [target for _, target, _, _ in made.mover.asked]
        assert targets == ["b:1"] * MAX_PER_TARGET + ["c:1"] * MAX_PER_TARGET
        made.mover.let(12)
        await until(lambda: made.counted("prefetch", "moved") == 12)
        assert len(made.orders) == 0


async def test_moves_that_a_request_waits_for_precede_replicas() -> None:
    async with asked() as made:
        made.ask(1)
        made.ask(101)
        await until(lambda: len(made.mover.asked) == MAX_PER_TARGET)
        made.ask(201, planner=REPLICATE)
        made.ask(301)
        made.mover.let(1)
        await until(lambda: len(made.mover.asked) == 3)
        assert made.mover.asked[2] == ("a:1", "b:1", 301, FlowPriority.PREFETCH)
        made.mover.let(1)
        await until(lambda: len(made.mover.asked) == 4)
        assert made.mover.asked[3] == ("a:1", "b:1", 201, FlowPriority.REPLICATION)


async def test_orders_beyond_the_limit_are_not_executed() -> None:
    async with asked() as made:
        known = [made.ask(10 * number + 1) for number in range(MAX_WAITING + MAX_PER_TARGET + 5)]
        assert known == [True] * (MAX_WAITING + MAX_PER_TARGET) + [False] * 5


async def test_a_pending_order_is_not_repeated() -> None:
    async with asked() as made:
        made.ask(1, request="r-1")
        made.ask(1, request="r-2")
        await until(lambda: len(made.mover.asked) == 1)
        made.orders.left_queue("r-1")
        made.mover.let(5)
        await until(lambda: made.counted("prefetch", "moved") == 1)
        assert len(made.mover.asked) == 1


async def test_an_order_is_dropped_with_its_request() -> None:
    async with asked() as made:
        for first in (1, 101, 201):
            made.ask(first)
        await until(lambda: len(made.mover.asked) == MAX_PER_TARGET)
        made.orders.left_queue("r-201")
        made.orders.left_queue("r-201")
        made.orders.left_queue("unknown")
        assert (len(made.orders), made.counted("prefetch", "dropped")) == (2, 1)
        made.mover.let(2)
        await until(lambda: made.counted("prefetch", "moved") == 2)
        assert sorted(first for _, _, first, _ in made.mover.asked) == [1, 101]


async def test_a_started_order_stops_after_its_part_and_keeps_the_moved_blocks() -> None:
    async with asked() as made:
        made.ask(1, blocks=5 * PART_BLOCKS)
        await until(lambda: len(made.mover.asked) == 1)
        made.mover.let(1)
        await until(lambda: len(made.mover.asked) == 2)
        made.orders.left_queue("r-1")
        made.mover.let(10)
        await until(lambda: made.counted("prefetch", "late") == 1)
        (row,) = made.rows()
        assert (row.outcome, row.asked_blocks, row.blocks) == ("late", 5 * PART_BLOCKS, 2 * PART_BLOCKS)
        assert row.bytes == 2 * PART_BLOCKS * BLOCK
        assert [tokens for _, tokens in made.orders.book.loaded("b", (1, 2))] == [32]


async def test_a_failed_order_reports_the_blocks_moved_before() -> None:
    async with asked() as made:
        made.mover.outcomes = {PART_BLOCKS + 1: MISSING, 1001: FAILED}
        made.ask(1, blocks=3 * PART_BLOCKS)
        made.ask(1001)
        made.mover.let(10)
        await until(lambda: made.counted("prefetch", "missing") == made.counted("prefetch", "failed") == 1)
        reported = {row.outcome: row for row in made.rows()}
        assert (reported["missing"].blocks, reported["missing"].worth) == (PART_BLOCKS, "open")
        assert (reported["failed"].blocks, reported["failed"].worth) == (0, "none")


async def test_nodes_no_longer_followed_get_no_orders() -> None:
    async with asked() as made:
        made.ask(1, target="x")
        await until(lambda: made.counted("prefetch", "failed") == 1)
        assert made.mover.asked == []


async def test_a_planner_with_useless_orders_backs_off_and_others_do_not() -> None:
    async with asked() as made:
        made.mover.let(1000)
        for number in range(30):
            made.clock.now += 1.0
            made.ask(10 * number + 1, planner=REPLICATE)
            await until(lambda: len(made.orders) == 0)
        moved = made.counted("replicate", "moved")
        assert moved == 30
        made.clock.now += 1000.0
        made.orders.sweep()
        assert made.metrics.kv_move_useless.value("replicate") == 30
        assert {row.worth for row in made.rows()} == {"useless"}
        known = [made.ask(9001, planner=REPLICATE), made.ask(9101, planner=REPLICATE)]
        assert known == [True, False]
        assert made.ask(9201)
        made.clock.now += TRIAL_S
        assert made.ask(9101, planner=REPLICATE)


async def test_an_order_that_moves_nothing_makes_no_row() -> None:
    class Nothing(SlowMover):
        @override
        def move(
            self, source: str, target: str, keys: Sequence[int], priority: FlowPriority, expected_s: float = 0.0
        ) -> Part:
            self.asked.append((source, target, keys[0], priority))
            return Part((), 0, MOVED)

    made = Asked()
    made.mover = Nothing()
    made.orders._mover = made.mover
    made.ask(1)
    await until(lambda: len(made.orders) == 0)
    assert (made.rows(), made.counted("prefetch", "moved"), len(made.mover.asked)) == ([], 0, 1)
    await made.orders.stop()


class Dropped:
    """Receives the orders of advisories. Mutable: those dropped for others."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def dropped(self, asked_by: Set[str]) -> None:
        self.names |= asked_by

    def moved(self, row: KvMoveRow, asked_by: Set[str]) -> None: ...

    def judged(self, row: KvMoveRow) -> None: ...

    def used(self, row: KvMoveRow, tokens: int) -> None: ...


async def test_the_source_of_a_dropped_order_is_notified() -> None:
    made, received = Asked(), Dropped()
    made.orders.listener = received
    for number in range(MAX_PER_TARGET):
        made.ask(1000 * number + 1)
    assert made.ask(500, planner=ADVISORY, request="session s")
    number = MAX_PER_TARGET
    while not received.names and number < 2 * MAX_WAITING:
        assert made.ask(1000 * number + 1)
        number += 1
    assert received.names == {"session s"}
    assert made.counted("advisory", "dropped") == 1
    made.mover.let(2 * MAX_WAITING)
    await made.orders.stop()


async def test_stopping_during_a_move_leaves_nothing_behind() -> None:
    made = Asked()
    made.ask(1)
    made.ask(101)
    await until(lambda: len(made.mover.asked) == 2)
    stopping = asyncio.create_task(made.orders.stop())
    await asyncio.sleep(0)
    assert not made.ask(201)
    made.mover.let(10)
    await stopping
    assert len(made.orders) == 0
    assert not [item for item in threading.enumerate() if item.name.startswith("kv-order")]


@pytest.mark.parametrize("planner", [PREFETCH, REPLICATE])
async def test_a_failing_mover_fails_only_its_order(planner: Planner) -> None:
    class Broken(SlowMover):
        @override
        def move(
            self, source: str, target: str, keys: Sequence[int], priority: FlowPriority, expected_s: float = 0.0
        ) -> Part:
            raise RuntimeError("broken")

    made = Asked()
    made.orders._mover = Broken()
    made.ask(1, planner=planner)
    await until(lambda: made.counted(planner, "failed") == 1)
    await made.orders.stop()


@pytest.mark.parametrize("planner", [REPLICATE, ADVISORY])
async def test_an_unused_copy_is_dropped_if_another_node_has_the_block(planner: Planner) -> None:
    async with asked() as made:
        held = made.nodes.holdings
        for name in "ab":
            held.join(name)
            held.stored(name, [1, 2, 3])
            held.complete(name)
        made.ask(1, planner=planner, request="session s" if planner == ADVISORY else "")
        made.mover.let(1)
        await until(lambda: made.counted(planner, "moved") == 1)
        made.orders.sweep()
        made.clock.now += COLD_S
        made.orders.sweep()
        await until(lambda: made.counted("shrink", "freed") == 1)
        assert made.mover.shrunk == [("a:1", "b:1", 1, 3)]
        row = next(item for item in made.rows() if item.planner == SHRINK)
        assert (row.source, row.target, row.asked_blocks, row.blocks, row.bytes) == ("a", "b", 3, 3, 3 * BLOCK)
        assert (row.outcome, row.worth, row.pool_id) == (FREED, "open", "pool")
        made.orders.sweep()
        assert len(made.orders) == 0
        made.clock.now += MISSED_S
        made.orders.sweep()
        assert next(item.worth for item in made.rows() if item.planner == SHRINK) == "useful"
        assert made.metrics.kv_move_useless.value("shrink") == 0


async def test_shrinks_whose_blocks_are_soon_missed_make_their_planner_back_off() -> None:
    async with asked() as made:
        for number in range(30):
            made.clock.now += 1.0
            made.ask(10 * number + 1, planner=SHRINK)
            await until(lambda: len(made.orders) == 0)
            made.orders.wanted("a", [10 * number + 1])
            made.orders.wanted("b", [10 * number + 3, 9000])
            made.orders.freed.check()
        freed = made.counted("shrink", "freed")
        assert freed < 30, "it was let go on"
        assert made.metrics.kv_move_useless.value("shrink") == freed
        assert {(row.outcome, row.worth) for row in made.rows()} == {(FREED, "useless")}
        assert made.ask(9001, planner=REPLICATE), "another planner's orders are not to blame"
        made.mover.let(1)


async def test_a_long_prefix_shrinks_from_its_end_until_the_node_keeps_a_part() -> None:
    async with asked() as made:
        made.mover.outcomes[PART_BLOCKS // 2 + 1] = KEPT
        move = KvMove(SHRINK, "a", "b", tuple(range(1, 2 * PART_BLOCKS + PART_BLOCKS // 2 + 1)), 0.0)
        made.orders.ask(move, "pool", 0, made.clock.now)
        await until(lambda: made.counted("shrink", "kept") == 1)
        half = PART_BLOCKS // 2
        assert [(first, last) for _, _, first, last in made.mover.shrunk] == [
            (PART_BLOCKS + half + 1, 2 * PART_BLOCKS + half),
            (half + 1, PART_BLOCKS + half),
        ]
        (row,) = made.rows()
        assert (row.outcome, row.blocks, row.worth) == (KEPT, PART_BLOCKS, "open")
