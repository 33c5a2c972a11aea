"""Pools that only observe: others route their requests, and tell of them afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.http.openai_error import ApiError

if TYPE_CHECKING:
    from gateway.pool.live_pool import LivePool


def reject_if_observing(pool: LivePool) -> None:
    """Raise ApiError 409 where the pool routes nothing."""
    if pool.observes:
        raise ApiError(409, "This pool only observes; send requests to your own proxy.", "pool_observes")
