"""Plans moves of KV blocks ahead of their use, runs them within limits, and judges them by their savings.

No request waits for a move. While a request is queued, the blocks that it will load are moved to its engine's node
(prefetch). The same happens for a session that announced its next request (advisory). Leading blocks that are
repeatedly loaded from another node are copied (replicate), until they are no longer loaded there (shrink). Moves run on
separate threads; everything else runs on the event loop's thread.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

import msgspec

from gateway.base.event_log import log_event
from gateway.base.metrics import GatewayMetrics
from gateway.contracts.kv_move import FAILED, FREED, LATE, MOVED, USEFUL, Ending, KvMoveRow
from gateway.kv.moves.block_mover import PART_BLOCKS, BlockMover, Mover, Part
from gateway.kv.moves.freed_copies import FreedCopies
from gateway.kv.moves.move_ledger import MoveLedger
from gateway.kv.nodes.kv_nodes import KvNodes
from kvstore.transfer.flow_control import FlowPriority
from kvstore.transfer.shared_secret import NodeAccess
from planning.kv_moves.kv_move import ADVISORY, JUDGED, PREFETCH, REPLICATE, SHRINK, KvMove
from planning.kv_moves.planner_trust import PlannerTrust
from planning.kv_moves.prefetch import prefetch
from planning.kv_moves.replica_count import Replicas, change_replica
from planning.kv_moves.replication import HotLoads
from routing.ledger.node_loads import NodeLoads
from routing.values.decision import Decision
from routing.values.inference_request import InferenceRequest
from routing.values.load_options import LoadOptions
from routing.values.observation import FAILED as LOAD_FAILED
from routing.values.observation import LATE as LOAD_LATE
from routing.values.observation import UNTOLD, LoadResult

if TYPE_CHECKING:
    from routing.values.decision import Queued
    from routing.values.inference_request import InferenceRequest


MAX_WAITING = 64
"""Limit of moves that have not begun, over all nodes. Further moves are rejected."""
MAX_UNDER_WAY = 4
"""Limit of concurrent moves, each with a thread."""
MAX_PER_TARGET = 2
"""Limit of concurrent moves to one node. More would share one link and disk, and none would finish sooner."""
DROPPED = "dropped"
MAX_ADVISORIES = MAX_WAITING // 2
"""Limit of waiting moves for advisories, which leaves room for requests that have arrived."""
_PRIORITY = {PREFETCH: FlowPriority.PREFETCH, ADVISORY: FlowPriority.ADVISORY}


class MoveListener(Protocol):
    """Receives the results of moves for advisories."""

    def moved(self, row: KvMoveRow, asked_by: Set[str]) -> None:
        """Record the end of a move requested by these sessions."""

    def dropped(self, asked_by: Set[str]) -> None:
        """Record that a move for these sessions was dropped before it began, in favor of others."""

    def judged(self, row: KvMoveRow) -> None:
        """Record whether a copy was ever loaded from."""

    def used(self, row: KvMoveRow, tokens: int) -> None:
        """Record that an engine loaded this many tokens from a copy."""


class _Order(msgspec.Struct):
    """One move. Mutable: the requests that still wait for it, and whether it has begun."""

    move: KvMove
    pool_id: str
    block_tokens: int
    number: int
    asked_at: float
    wanted_by: set[str]
    """Ids of the queued requests, or names of the sessions, that wait for it; empty if none waits."""
    asked_by: set[str]
    """All requests and sessions that asked for it, including those that no longer wait."""
    begun: bool = False
    promoted: bool = False
    """Whether a request that has arrived waits for an advisory's move."""

    @property
    def destination(self) -> tuple[str, int]:
        """Return the destination of its last block."""
        return self.move.target, self.move.keys[-1]

    @property
    def priority(self) -> FlowPriority:
        """Return the priority of its transfer."""
        return FlowPriority.PREFETCH if self.promoted else _PRIORITY.get(self.move.planner, FlowPriority.REPLICATION)

    @property
    def is_late(self) -> bool:
        """Return whether its request has left the queue."""
        return self.move.planner in (PREFETCH, ADVISORY) and not self.wanted_by


class MoveScheduler:
    """Schedules moves of blocks between nodes.

    Mutable: `_orders` by the destination of their last block, `_of_request`, the running tasks, and the planners'
    state.
    """

    def __init__(
        self,
        nodes: KvNodes,
        access: NodeAccess,
        metrics: GatewayMetrics,
        *,
        mover: Mover | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._nodes, self._clock, self._wall = nodes, clock, wall
        self.metrics = metrics
        self._mover: Mover = mover or BlockMover(access)
        self.book = MoveLedger(nodes.holdings.holds, self._judged)
        self.freed = FreedCopies()
        self.trust = {planner: PlannerTrust() for planner in JUDGED}
        self.listener: MoveListener | None = None
        """Receives the results of moves for advisories."""
        self.hot, self._replicas = HotLoads(), Replicas()
        self._orders: dict[tuple[str, int], _Order] = {}
        self._of_request: dict[str, _Order] = {}
        self._under_way: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._number = 0
        self._closed = False

    def __len__(self) -> int:
        return len(self._orders)

    # -- what planners receive

    def queued(self, request: InferenceRequest, decision: Decision, loads: LoadOptions, now: float) -> None:
        """Move the blocks that a request, which now waits for its engine, will load."""
        move = prefetch(request, decision, loads)
        if move is not None:
            self.ask(move, decision.pool_id, request.block_tokens, now, request.request_id)

    def left_queue(self, request_id: str) -> None:
        """Drop the moves of a request that no longer waits, unless others wait for the same move."""
        order = self._of_request.pop(request_id, None)
        if order is None:
            return
        order.wanted_by.discard(request_id)
        if order.is_late and not order.begun:
            self._drop(order)

    def loaded(
        self,
        pool_id: str,
        block_tokens: int,
        loads: NodeLoads,
        link: tuple[str, str],
        keys: Sequence[int],
        first: int,
        *,
        plans: bool = True,
    ) -> None:
        """Record that an engine loaded leading blocks from `first` on. `link` is (its own node, the holder).

        With `plans`, replicate blocks that are often loaded.
        """
        home, holder = link
        for row, tokens in self.book.loaded(holder, keys[first:]):
            self.metrics.kv_move_saved_tokens.inc(row.planner, amount=float(tokens))
            if row.planner == ADVISORY and self.listener is not None:
                self.listener.used(row, tokens)
        now = self._clock()
        self._replicas.loaded(holder, keys, now)
        move = self.hot.loaded(keys, home, holder, loads, now) if home and plans else None
        if move is not None:
            self.ask(move, pool_id, block_tokens, now)

    def wanted(self, home: str, keys: Sequence[int]) -> None:
        """Record the blocks that a dispatched request's engine lacks. `home` is that engine's node."""
        for row in self.freed.wanted(home, keys, self._clock()):
            self._judge_shrink(row)

    # -- orders

    def ask(
        self, move: KvMove, pool_id: str, block_tokens: int, now: float, request_id: str = "", *, wanted: bool = False
    ) -> bool:
        """Request a move of blocks; return whether it was accepted.

        It is accepted if the limits allow it, and the planner is trusted or an operator wanted it.
        """
        destination = move.target, move.keys[-1]
        known = self._orders.get(destination)
        if known is None:
            if self._closed or not self._has_room(move):
                return False
            trust = self.trust.get(move.planner)
            if not wanted and trust is not None and not trust.may_ask(now):
                return False
            self._number += 1
            known = _Order(move, pool_id, block_tokens, self._number, self._wall(), set(), set())
            self._orders[destination] = known
        if request_id:
            # A request that is there promotes the order of its session's advisory.
            known.promoted |= move.planner == PREFETCH
            known.wanted_by.add(request_id)
            known.asked_by.add(request_id)
            self._of_request[request_id] = known
        self._begin_next()
        return True

    def backlog(self) -> dict[str, float]:
        """Return node → seconds until the requested blocks are expected to have arrived."""
        waiting: dict[str, float] = {}
        for order in self._orders.values():
            waiting[order.move.target] = waiting.get(order.move.target, 0.0) + order.move.seconds
        return waiting

    def holds(self, node: str, keys: Sequence[int]) -> bool:
        """Return whether a node holds the first of these blocks."""
        return bool(keys) and self._nodes.holdings.holds(node, keys[0])

    def sweep(self) -> None:
        """Judge copies, and drop an unused one. Call it about every second."""
        now = self._clock()
        self.book.sweep(now)
        for row in self.freed.sweep(now):
            self._judge_shrink(row)
        cold = self._replicas.cold(self._nodes.holdings, now)
        if cold is not None:
            self.ask(cold[0], cold[1], 0, now)

    async def stop(self) -> None:
        """Stop the running moves, and accept no more."""
        self._closed = True
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._orders.clear()
        self._of_request.clear()
        if self._threads is not None:
            # Off the loop, because it waits for the parts that are being moved.
            await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)
        self._mover.close()

    def _has_room(self, move: KvMove) -> bool:
        """Return whether one more move can wait. A waiting move for an advisory is dropped for others."""
        waiting = [order for order in self._orders.values() if not order.begun]
        advised = [item for item in waiting if item.move.planner == ADVISORY and not item.promoted]
        if move.planner == ADVISORY:
            return len(waiting) < MAX_WAITING and len(advised) < MAX_ADVISORIES
        if len(waiting) >= MAX_WAITING and advised:
            self._drop(max(advised, key=lambda item: (item.move.rank, item.number)))
            return True
        return len(waiting) < MAX_WAITING

    def _drop(self, order: _Order) -> None:
        del self._orders[order.destination]
        for request_id in order.wanted_by:
            self._of_request.pop(request_id, None)
        self.metrics.kv_moves.inc(order.move.planner, DROPPED)
        if order.move.planner == ADVISORY and self.listener is not None:
            self.listener.dropped(order.asked_by)

    def _begin_next(self) -> None:
        targets = Counter(target for target, _ in self._under_way)
        waiting = sorted((item for item in self._orders.values() if not item.begun), key=_turn)
        for order in waiting:
            if len(self._under_way) >= MAX_UNDER_WAY:
                return
            if targets[order.move.target] < MAX_PER_TARGET:
                targets[order.move.target] += 1
                order.begun = True
                self._under_way[order.destination] = asyncio.create_task(self._carry_out(order), name="KV order")

    async def _carry_out(self, order: _Order) -> None:
        began, came, size = self._clock(), list[int](), 0
        try:
            outcome, came, size = await self._moved(order)
        except Exception as error:  # noqa: BLE001 - an order's end must not depend on what a thread of it raised
            log_event("kv_move_failed", error=type(error).__name__)
            outcome = FAILED
        finally:
            del self._under_way[order.destination], self._orders[order.destination]
        for request_id in order.wanted_by:
            self._of_request.pop(request_id, None)
        move, now = order.move, self._clock()
        row = KvMoveRow(
            order_id=uuid4().hex,
            asked_at=order.asked_at,
            pool_id=order.pool_id,
            planner=move.planner,
            source=move.source,
            target=move.target,
            asked_blocks=len(move.keys),
            blocks=len(came),
            bytes=size,
            seconds=now - began,
            outcome=outcome,
        )
        if came or outcome != MOVED:
            self.metrics.kv_moves.inc(move.planner, outcome)
            if move.planner == SHRINK:
                self.book.report(self.freed.went(row, came, now))
            else:
                self.book.ended(row, came, order.block_tokens, now)
        if move.planner in (REPLICATE, ADVISORY) and outcome == MOVED and move.source != move.target:
            # A node does not know that its only DRAM copy is an ordered one, so room for it is reclaimed here.
            self._replicas.made(move.target, move.keys, order.pool_id, now)
        if move.planner == ADVISORY and self.listener is not None:
            self.listener.moved(row, order.asked_by)
        self._begin_next()

    async def _moved(self, order: _Order) -> tuple[Ending, list[int], int]:
        """Move blocks in parts while they are wanted; return (ending, moved keys, their bytes)."""
        move, came, size = order.move, list[int](), 0
        threads = self._threads = self._threads or ThreadPoolExecutor(MAX_UNDER_WAY, "kv-order")
        loop = asyncio.get_running_loop()
        for begin in range(0, len(move.keys), PART_BLOCKS):
            # Read again for each part, because a node may have left or moved meanwhile.
            addresses = self._nodes.addresses([move.source, move.target])
            if order.is_late or len(addresses) < 2:
                return LATE if order.is_late else FAILED, came, size
            moved = await loop.run_in_executor(threads, self._part_of(order, begin, *addresses))
            came += moved.keys
            size += moved.bytes
            if moved.outcome not in (MOVED, FREED):
                return moved.outcome, came, size
        if move.planner == SHRINK:
            return FREED, came, size
        return LATE if order.is_late else MOVED, came, size

    def _part_of(self, order: _Order, begin: int, source: str, target: str) -> Callable[[], Part]:
        """Return a function that moves one part. For a shrink, it drops one part, starting at the end of the prompt."""
        move = order.move
        if move.planner == SHRINK:
            # The last blocks first: without its first ones, the rest of a prefix could not be loaded.
            end = len(move.keys) - begin
            return partial(self._mover.shrink, source, target, move.keys[max(0, end - PART_BLOCKS) : end])
        expected_s = max(0.0, move.expected_s - self._clock()) if move.expected_s else 0.0
        part = move.keys[begin : begin + PART_BLOCKS]
        return partial(self._mover.move, source, target, part, order.priority, expected_s)

    def _judge_shrink(self, row: KvMoveRow) -> None:
        self.book.report(row)
        self._judged(row)

    def _judged(self, row: KvMoveRow) -> None:
        useful = row.worth == USEFUL
        if not useful:
            self.metrics.kv_move_useless.inc(row.planner)
        for planner, trust in self.trust.items():
            if planner == row.planner:
                trust.judged(useful)
        if row.planner == ADVISORY and self.listener is not None:
            self.listener.judged(row)


def _turn(order: _Order) -> tuple[int, int, float, int]:
    move = order.move
    return order.priority, move.rank, move.expected_s if move.planner == ADVISORY else 0.0, order.number


class PoolMoves:
    """One pool's moves. It makes no routing decisions, and no request waits for it.

    `plans` returns whether this gateway decides for the pool. Otherwise its owner, which sees all requests, plans.
    """

    def __init__(self, orders: MoveScheduler, pool_id: str, loads: NodeLoads, plans: Callable[[], bool]) -> None:
        self._orders, self._pool_id, self._loads, self._plans = orders, pool_id, loads, plans

    def queued(self, request: InferenceRequest, queued: Queued, now: float) -> None:
        """Request the move for a queued request, if it is bound to an engine and will load."""
        if queued.loads is not None and queued.decision.engine_id:
            self._orders.queued(request, queued.decision, queued.loads, now)

    def left(self, request_id: str) -> None:
        """Drop the moves of a request that no longer waits."""
        self._orders.left_queue(request_id)

    def set_copies(self, keys: Sequence[int], copies: int, requests: Mapping[str, float], size: int, now: float) -> int:
        """Order the moves after which `copies` nodes hold these leading blocks of `size` tokens; return their number.

        `requests` per engine decide which nodes get or keep copies.
        """
        loads, demand = self._loads, dict.fromkeys(self._loads.homes.values(), 0.0)
        for engine_id, number in requests.items():
            if (home := loads.homes.get(engine_id)) is not None:
                demand[home] += number
        blocks = len(keys)
        moves = change_replica(
            keys, copies, demand, loads.holdings, lambda target, source: loads.seconds(target, source, blocks)
        )
        return sum(self._orders.ask(move, self._pool_id, size, now, wanted=True) for move in moves)

    def dispatched(self, request: InferenceRequest, decision: Decision) -> None:
        """Record the blocks that the request's engine lacks."""
        home = self._loads.homes.get(decision.engine_id)
        if home is not None and decision.candidates:
            self._orders.wanted(home, request.keys[decision.candidates[0].blocks :])

    def loaded(self, request: InferenceRequest, engine_id: str, load: LoadResult, now: float) -> None:
        """Learn from a request's load, and plan with it."""
        learned, name, keys = self._loads, request.request_id, request.keys
        if load.result == UNTOLD:
            self._orders.book.unseen(load.node, keys[load.held : load.ordered])
        elif load.result == LOAD_FAILED:
            learned.failed(load.node, now)
        elif load.result == LOAD_LATE:
            learned.late(engine_id, load.node, load.ordered - load.held, load.seconds, now, load.ssd_blocks, name)
        if load.blocks:
            learned.loaded(engine_id, load.node, load.blocks, load.size, load.seconds, now, load.ssd_blocks, name)
            first, end = load.span
            link = learned.homes.get(engine_id, ""), load.node
            tokens = request.block_tokens
            self._orders.loaded(self._pool_id, tokens, learned, link, keys[:end], first, plans=self._plans())
