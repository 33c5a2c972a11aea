"""Sends prefetches into engines' own memory for announced sessions (SYMPHONY §3.4), the most urgent ones first.

A request of one token carries each prefetch: its connector loads the session's blocks from the engine's own node into
free memory, which the engine may drop at any time. A lost, late, or rejected prefetch changes nothing: the session's
request then loads from the node as without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from gateway.base.event_log import log_event
from gateway.base.metrics import GatewayMetrics
from gateway.pools.engines.health_probe import EngineAnswerError, EngineUnreachableError
from gateway.requests.kv_load_report import take_outcome
from kvstore.connector.engine_params import FIELD, MAX_RANK, KvOutcome, LoadInstruction, packed_keys
from kvstore.transfer.frames import MAX_KEYS

if TYPE_CHECKING:
    from gateway.pools.pool.live_pool import LivePool

MAX_WAITING = 64
"""Limit of prefetches that wait for an engine. Beyond it, the least urgent one is dropped."""
TIMEOUT_S = 10.0
"""An engine that has no room for a request of one token by then is too busy for a prefetch."""
LOADED, NOTHING, FAILED, DROPPED = "loaded", "nothing", "failed", "dropped"


class EnginePrefetchOrder(msgspec.Struct, frozen=True):
    """One session's blocks for its reserved engine. A lower rank is more urgent."""

    name: str
    tenant_id: str
    pool_id: str
    engine_id: str
    keys: Sequence[int]
    rank: int
    expected_s: float


class EnginePrefetches:
    """At most one prefetch at a time for each engine.

    Mutable: `_waiting` by session, and `_under_way`, engine → (session, task).
    """

    def __init__(
        self,
        pools: Mapping[str, LivePool],
        metrics: GatewayMetrics,
        ended: Callable[[EnginePrefetchOrder, KvOutcome], None],
    ) -> None:
        """`ended` receives each prefetch that the engine has answered."""
        self._pools, self._metrics, self._ended = pools, metrics, ended
        self._waiting: dict[str, EnginePrefetchOrder] = {}
        self._under_way: dict[str, tuple[str, asyncio.Task[None]]] = {}

    def __len__(self) -> int:
        return len(self._waiting) + len(self._under_way)

    def ask(self, order: EnginePrefetchOrder) -> None:
        """Prefetch when the engine has no other prefetch. The newest order of a session wins."""
        self._waiting[order.name] = order
        if len(self._waiting) > MAX_WAITING:
            last = max(self._waiting.values(), key=_turn)
            del self._waiting[last.name]
            self._metrics.engine_prefetches.inc(last.pool_id, DROPPED)
        self._begin_next(order.engine_id)

    def cancel(self, name: str) -> None:
        """End a session's prefetch: its request is there, or will not come."""
        self._waiting.pop(name, None)
        for session, task in self._under_way.values():
            if session == name:
                task.cancel()

    def stop(self) -> None:
        """End all prefetches."""
        self._waiting.clear()
        for _, task in self._under_way.values():
            task.cancel()

    def _begin_next(self, engine_id: str) -> None:
        waiting = [order for order in self._waiting.values() if order.engine_id == engine_id]
        if waiting and engine_id not in self._under_way:
            order = self._waiting.pop(min(waiting, key=_turn).name)
            task = asyncio.create_task(self._carry_out(order), name="engine prefetch")
            self._under_way[engine_id] = order.name, task

    async def _carry_out(self, order: EnginePrefetchOrder) -> None:
        outcome: KvOutcome | None = None
        try:
            outcome = await self._sent(order)
        except (EngineAnswerError, EngineUnreachableError) as error:
            log_event("engine_prefetch_failed", engine_id=order.engine_id, reason=str(error))
        finally:
            del self._under_way[order.engine_id]
            self._begin_next(order.engine_id)
        result = FAILED if outcome is None else LOADED if outcome.loaded_blocks else NOTHING
        self._metrics.engine_prefetches.inc(order.pool_id, result)
        if outcome is not None:
            self._ended(order, outcome)

    async def _sent(self, order: EnginePrefetchOrder) -> KvOutcome | None:
        """Return the engine's outcome, None if the engine is gone or has no connector."""
        pool = self._pools.get(order.pool_id)
        engine = pool.engines.get(order.engine_id) if pool is not None else None
        if pool is None or engine is None:
            return None
        keys = order.keys[:MAX_KEYS]
        instruction = LoadInstruction(
            keys=packed_keys(keys), load_blocks=len(keys), prefetch_rank=min(max(0, order.rank), MAX_RANK)
        )
        body: dict[str, Any] = {"kv_transfer_params": {FIELD: msgspec.to_builtins(instruction)}}
        if salt := pool.domains.of(order.tenant_id):
            body["cache_salt"] = salt
        _, outcome = take_outcome(await engine.adapter.generate_one(TIMEOUT_S, **body))
        return outcome


def _turn(order: EnginePrefetchOrder) -> tuple[int, float, str]:
    return order.rank, order.expected_s, order.name
