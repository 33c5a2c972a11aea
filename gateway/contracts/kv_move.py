"""KV block moves between nodes: their results, as reported by gateways, and operators' orders of copies.

A row is sent when its transfer has ended, when its copy is loaded from, and when it is judged. A later row with the
same id replaces an earlier one.
"""

from __future__ import annotations

import math
import re
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from gateway.contracts.wire import MIB, WireForm

TOPIC = "kv_moves"
"""Stream topic; values are encoded lists of KvMoveRows."""
MAX_ROWS = 256
"""Maximum rows per message."""

Ending = Literal["moved", "missing", "failed", "late", "freed", "kept"]
MOVED: Ending = "moved"
MISSING: Ending = "missing"
"""The source no longer held the blocks."""
FAILED: Ending = "failed"
"""A node did not respond, or the target had no room."""
LATE: Ending = "late"
"""The request had left the queue before all blocks had arrived."""
FREED: Ending = "freed"
"""The target freed its copies."""
KEPT: Ending = "kept"
"""The target kept its copies: they are pinned, locked, in use, or followed by others, or the source no longer has them.
"""
Worth = Literal["open", "none", "useful", "useless"]
OPEN: Worth = "open"
"""The copy exists and has not been loaded from yet. For a shrink: no request has missed the blocks yet."""
NONE: Worth = "none"
"""No block was moved or freed."""
USEFUL: Worth = "useful"
"""The copy was loaded from. For a shrink: no request has missed the blocks for long enough."""
USELESS: Worth = "useless"
"""The copy is gone or old, and was never loaded from. For a shrink: a request has missed the blocks."""

_END_OF_TIME = 1e11
_Name = Annotated[str, Meta(min_length=1, max_length=64)]
_Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class KvMoveRow(msgspec.Struct, frozen=True, kw_only=True):
    """One move: its planner and reason, the moved blocks, and their usefulness."""

    order_id: Annotated[str, Meta(min_length=1, max_length=64)]
    asked_at: float
    """Unix seconds."""
    pool_id: Annotated[str, Meta(min_length=1, max_length=128)]
    planner: Annotated[str, Meta(min_length=1, max_length=32)]
    """prefetch, advisory, replicate or shrink."""
    source: _Name
    """Name of the node that the blocks came from; the target itself if they were on its SSD. For a shrink: the node
    that keeps them.
    """
    target: _Name
    asked_blocks: _Count
    blocks: _Count = 0
    """Blocks that were transferred, without those already present. For a shrink: blocks that were freed."""
    bytes: _Count = 0
    seconds: float = 0.0
    """Seconds from the start of the move to its last byte."""
    outcome: Ending
    loads: _Count = 0
    """Number of requests that loaded from the copy."""
    saved_tokens: _Count = 0
    """Prompt tokens that engines loaded from the copy instead of computing them."""
    worth: Worth = OPEN


def _problem(rows: list[KvMoveRow]) -> str:
    if len(rows) > MAX_ROWS:
        return f"more than {MAX_ROWS} rows"
    if not all(0 <= row.asked_at < _END_OF_TIME and 0 <= row.seconds < math.inf for row in rows):
        return "a time is not finite, below 0, or after the year 5138"
    return ""


_rows = WireForm(list[KvMoveRow], "a list of KV moves", limit=MIB, problem=_problem)
encode_orders, decode_orders = _rows.encode, _rows.decode


REPLICAS = "replicas/"
"""Prefix of the last-value topics of ReplicaOrders, one per pool: `replicas/<pool_id>`."""
MAX_COPIES = 64
_PREFIX = "^[0-9a-f]{16}$"
PREFIX_NAME = re.compile(_PREFIX).match


class ReplicaOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The number of copies that an operator wants of one prefix (Mooncake §3.2.2)."""

    pool_id: str
    at: float
    """Unix seconds, which also identify the order."""
    prefix: Annotated[str, Meta(pattern=_PREFIX)]
    """Key of its last block, in hex digits."""
    copies: Annotated[int, Meta(ge=1, le=MAX_COPIES)]


_replicas = WireForm(ReplicaOrder, "an order of copies", limit=4096)
encode_replicas, decode_replicas = _replicas.encode, _replicas.decode
