"""Order from the rebalancing automation to every gateway of a pool, as published on the bus."""

from __future__ import annotations

import msgspec

from gateway.contracts.wire import MIB, UnreadableMessageError, WireForm
from routing.rebalancing_overrides import MAX_CANDIDATES, MAX_WIDENED

TOPIC_PREFIX = "rebalance/"
"""Prefix of the last-value topics, one per pool: `rebalance/<pool_id>`."""
GOOD_S = 30.0
"""An order that is not renewed for this long expires, because the widened prefixes have lost their supervisor."""
MOVES_GOOD_S = 5.0
MAX_MOVES = 1000


class MoveOrder(msgspec.Struct, frozen=True):
    """Number of queued requests that can leave an engine, each only if it benefits."""

    engine_id: str
    at_most: int


class RebalanceOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The current table of widened prefixes, and one-time moves."""

    pool_id: str
    at: float
    """Unix seconds, which also identify the order."""
    fence: int
    """Fencing token of the job's lease. An order with a token below the highest seen is void."""
    widened: dict[str, int] = {}
    """Affinity key as 16 hex digits → number of candidate engines."""
    moves: tuple[MoveOrder, ...] = ()


def decode_order(data: bytes) -> tuple[RebalanceOrder, dict[int, int]]:
    """Return the order, and its widened prefixes by numeric key; raise UnreadableMessageError."""
    order = _order.decode(data)
    try:
        widened = {int(key, 16): d for key, d in order.widened.items()}
    except ValueError as error:
        raise UnreadableMessageError(f"not a rebalancing order: {error}") from error
    if len(widened) > MAX_WIDENED or len(order.moves) > MAX_MOVES:
        raise UnreadableMessageError("too many prefixes or moves")
    if any(not 1 <= d <= MAX_CANDIDATES for d in widened.values()):
        raise UnreadableMessageError(f"a prefix has 1 to {MAX_CANDIDATES} candidates")
    return order, widened


_order = WireForm(RebalanceOrder, "a rebalancing order", limit=MIB)
encode_order = _order.encode
