"""A node's report to the control plane: its sizes, state, and counters since its start."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from kvstore.keys.held_secrets import HeldSecrets

MAX_LINKS = 256
MAX_PINS = 64
PIN_NAME = "^([0-9a-f]{16}|[0-9a-f]{64})$"
REPORT_EVERY_S = 5.0
"""Seconds between two reports of a node. A node that misses three counts as silent."""

_Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
_Seconds = Annotated[float, Meta(ge=0)]


class TierReport(msgspec.Struct, frozen=True, kw_only=True):
    """One tier. Counters start at the node's start."""

    medium: Annotated[str, Meta(max_length=16)]
    """CPU or STORAGE, as in KV events."""
    slots: _Count = 0
    used_slots: _Count = 0
    withheld_slots: _Count = 0
    """Slots without disk space above the node's reserve."""
    hits: _Count = 0
    evicted: _Count = 0
    corrupt: _Count = 0


class LinkReport(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes transferred between the node and one peer."""

    peer: Annotated[str, Meta(max_length=64)]
    """The peer's self-chosen name, or its host if it gave none."""
    sent_bytes: _Count = 0
    received_bytes: _Count = 0
    bytes_per_s: _Seconds = 0.0
    """Rate measured by the peer as the receiver of large transfers, 0 before the first measurement."""


class PinReport(msgspec.Struct, frozen=True, kw_only=True):
    """One pinned prefix, identified by the key of its last block, without text or tokens."""

    name: Annotated[str, Meta(pattern=PIN_NAME)]
    """The gateway's key in hex, or the payload's if no gateway has named the block."""
    tenant: Annotated[str, Meta(max_length=64)]
    tokens: _Count = 0
    """Tokens of the whole prefix."""
    bytes: _Count = 0
    """Bytes of the blocks that no other pin needs."""
    left_s: _Seconds = 0.0
    """Seconds until the pin ends, at the time of the report."""
    tenant_bytes: _Count = 0
    """Total bytes that the tenant has pinned on the node."""


class NodeReport(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of one node since it started."""

    tiers: Annotated[list[TierReport], Meta(max_length=8)] = []
    links: Annotated[list[LinkReport], Meta(max_length=MAX_LINKS)] = []
    blocks: _Count = 0
    misses: _Count = 0
    stored: _Count = 0
    repaired: _Count = 0
    rejected: _Count = 0
    write_through_waiting: _Count = 0
    write_through_failed: _Count = 0
    """Blocks that the disk rejected."""
    disk_id: Annotated[str, Meta(max_length=32)] = ""
    """Identifies the SSD tier's file system to all processes of the machine. Empty if unknown."""
    disk_bytes: _Count = 0
    """Size of that file system."""
    disk_free_bytes: _Count = 0
    disk_reserve_bytes: _Count = 0
    """Bytes that the node leaves free for other programs."""
    disk_busy: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """Share of the last minute in which the disk read or wrote blocks."""
    pins: Annotated[list[PinReport], Meta(max_length=MAX_PINS)] = []
    """The largest pins."""
    more_pins: _Count = 0
    pin_quota_bytes: _Count = 0
    """Maximum bytes that each tenant can pin on the node."""
    eviction: Annotated[str, Meta(max_length=32)] = ""
    """The rule by which it evicts (kvstore.tiers.eviction). Empty if not reported."""
    ssd_policy: Annotated[str, Meta(max_length=32)] = ""
    """Which blocks it copies to SSD (kvstore.node.write_through). Empty if not reported."""
    secrets: HeldSecrets | None = None
    """Secrets shared with its clients, None if not reported."""
