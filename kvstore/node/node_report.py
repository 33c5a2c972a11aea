"""A node's report to the control plane: its sizes and state, and its counters since its start."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from kvstore.keys.held_secrets import HeldSecrets

MAX_LINKS = 256
MAX_PINS = 64
PIN_NAME = "^([0-9a-f]{16}|[0-9a-f]{64})$"
REPORT_EVERY_S = 5.0
"""Seconds between two reports of a node; one that misses three is silent."""

_Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
_Seconds = Annotated[float, Meta(ge=0)]


class TierReport(msgspec.Struct, frozen=True, kw_only=True):
    """One tier; the counters are since the node started."""

    medium: Annotated[str, Meta(max_length=16)]
    """CPU or STORAGE, as in KV events."""
    slots: _Count = 0
    used_slots: _Count = 0
    withheld_slots: _Count = 0
    """Slots for which the disk has no space above the node's reserve."""
    hits: _Count = 0
    evicted: _Count = 0
    corrupt: _Count = 0


class LinkReport(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes between the node and one peer."""

    peer: Annotated[str, Meta(max_length=64)]
    """The peer's own name; its host where it gave none."""
    sent_bytes: _Count = 0
    received_bytes: _Count = 0
    bytes_per_s: _Seconds = 0.0
    """Measured by the peer as the receiver of large transfers; 0: not yet."""


class PinReport(msgspec.Struct, frozen=True, kw_only=True):
    """One pinned prefix, by the key of its last block: neither text nor tokens."""

    name: Annotated[str, Meta(pattern=PIN_NAME)]
    """In hex: the gateway's key; the payload's, where no gateway has named it."""
    tenant: Annotated[str, Meta(max_length=64)]
    tokens: _Count = 0
    """Of the whole prefix."""
    bytes: _Count = 0
    """Bytes of the blocks that no other pin needs."""
    left_s: _Seconds = 0.0
    """Seconds until its end, at the moment of the report."""
    tenant_bytes: _Count = 0
    """Bytes that the tenant has pinned on the node in all."""


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
    """Of the SSD tier's file system: the same for all processes of the machine that use it; empty: unknown."""
    disk_bytes: _Count = 0
    """Its size."""
    disk_free_bytes: _Count = 0
    disk_reserve_bytes: _Count = 0
    """Bytes that the node leaves free for others."""
    disk_busy: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """Share of the last minute in which the disk read or wrote blocks."""
    pins: Annotated[list[PinReport], Meta(max_length=MAX_PINS)] = []
    """The largest."""
    more_pins: _Count = 0
    pin_quota_bytes: _Count = 0
    """Most bytes that each tenant may pin on the node."""
    secrets: HeldSecrets | None = None
    """Secrets shared with its clients; None: not reported."""
