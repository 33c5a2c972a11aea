"""Moves the blocks that a pool's queued requests will load near their engines while they wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.kv_moves.kv_moves import MoveScheduler
    from routing.values.decision import Queued
    from routing.values.inference_request import InferenceRequest


class QueuePrefetch:
    """One pool's prefetch. It makes no routing decisions, and no request waits for it."""

    def __init__(self, orders: MoveScheduler) -> None:
        self._orders = orders

    def queued(self, request: InferenceRequest, queued: Queued, now: float) -> None:
        """Request the move for a queued request, if it is bound to an engine and will load."""
        if queued.loads is not None and queued.decision.engine_id:
            self._orders.queued(request, queued.decision, queued.loads, now)

    def left(self, request_id: str) -> None:
        """Drop the moves of a request that no longer waits."""
        self._orders.left_queue(request_id)
