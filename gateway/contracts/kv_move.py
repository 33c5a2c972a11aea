"""Results of orders that moved KV blocks between nodes, as gateways report them.

A row is sent when its transfer has ended, when its copy is loaded from, and when it is judged. A later row with the
same id replaces an earlier one.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from gateway.contracts.wire import MIB, WireForm

TOPIC = "kv_moves"
"""Stream topic; values are encoded lists of KvMoveRows."""
MAX_ROWS = 256
"""Per message."""

Ending = Literal["moved", "missing", "failed", "late", "freed", "kept"]
MOVED: Ending = "moved"
MISSING: Ending = "missing"
"""The source had them no more."""
FAILED: Ending = "failed"
"""A node did not answer, or the target had no room."""
LATE: Ending = "late"
"""The request had left the queue before all was there."""
FREED: Ending = "freed"
"""The target gave its copies up."""
KEPT: Ending = "kept"
"""The target kept them: they are pinned, locked, read or followed by others, or the source has them no more."""
Worth = Literal["open", "none", "useful", "useless"]
OPEN: Worth = "open"
"""Its copy exists and was not loaded from yet; of a shrink: no request has missed its blocks yet."""
NONE: Worth = "none"
"""No block came, or went."""
USEFUL: Worth = "useful"
"""Its copy was loaded from; of a shrink: no request has missed its blocks for long enough."""
USELESS: Worth = "useless"
"""Its copy left, or is old, and was never loaded from; of a shrink: a request has missed its blocks."""

_END_OF_TIME = 1e11
_Name = Annotated[str, Meta(min_length=1, max_length=64)]
_Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class KvMoveRow(msgspec.Struct, frozen=True, kw_only=True):
    """One order: its planner and reason, what it moved, and whether that was useful."""

    order_id: Annotated[str, Meta(min_length=1, max_length=64)]
    asked_at: float
    """Unix seconds."""
    pool_id: Annotated[str, Meta(min_length=1, max_length=128)]
    planner: Annotated[str, Meta(min_length=1, max_length=32)]
    """prefetch, advisory, replicate or shrink."""
    source: _Name
    """Name of the node that the blocks came from; the target's own: they were on its SSD. Of a shrink the one that
    keeps them.
    """
    target: _Name
    asked_blocks: _Count
    blocks: _Count = 0
    """Blocks that came, without those that were there already. Of a shrink those that went."""
    bytes: _Count = 0
    seconds: float = 0.0
    """From the order's start to its last byte."""
    outcome: Ending
    loads: _Count = 0
    """Requests that loaded from the copy."""
    saved_tokens: _Count = 0
    """Prompt tokens that engines loaded from the copy instead of computing them."""
    worth: Worth = OPEN


def _problem(rows: list[KvMoveRow]) -> str:
    if len(rows) > MAX_ROWS:
        return f"more than {MAX_ROWS} rows"
    if not all(0 <= row.asked_at < _END_OF_TIME and 0 <= row.seconds < math.inf for row in rows):
        return "a time is not finite, below 0, or after the year 5138"
    return ""


_rows = WireForm(list[KvMoveRow], "a list of KV orders", limit=MIB, problem=_problem)
encode_orders, decode_orders = _rows.encode, _rows.decode
