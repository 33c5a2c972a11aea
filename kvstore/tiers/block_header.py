"""Header of a slot on SSD: 256 bytes that describe the slot's block, valid only if their checksum matches."""

from __future__ import annotations

import struct
from collections.abc import Iterable

import msgspec
import xxhash

from kvstore.tiers.block_facts import BlockFacts

HEADER_BYTES = 256
"""Divides every sector size, so that no header spans two sectors."""
_FIELDS = struct.Struct("<8sHHIQQQdd16s32s32sB32sB64sQ")
_DIGEST = struct.Struct("<Q")
_MAGIC = b"SYKVSLOT"
_VERSION = 2
_FREE, _STORED = 0, 1


class BlockHeader(msgspec.Struct, frozen=True, gc=False):
    """A stored block, or the remains of one: bytes stay in a free slot until another block is written."""

    facts: BlockFacts
    stored: bool = True
    """False if the slot is free. `tenant` then owns the remaining bytes."""
    incarnation: int = 0
    sequence: int = 0
    """Of two headers with one key, the one with the greater (incarnation, sequence) is valid."""
    expires_at: float = 0.0
    pinned_until: float = 0.0
    """In seconds since the epoch, as is `expires_at`, because both outlive the process."""

    @property
    def age_order(self) -> tuple[int, int]:
        """Sort key that orders the newer of two headers last."""
        return self.incarnation, self.sequence

    def encode(self) -> bytes:
        """Return the header's bytes on disk."""
        facts, tenant = self.facts, self.facts.tenant.encode()
        fields = _FIELDS.pack(
            _MAGIC,
            _VERSION,
            _STORED if self.stored else _FREE,
            facts.tokens,
            self.incarnation,
            self.sequence,
            facts.length,
            self.expires_at,
            self.pinned_until,
            facts.checksum,
            facts.key,
            facts.parent,
            len(facts.chain_hash),
            facts.chain_hash,
            len(tenant),
            tenant,
            facts.routing_key,
        )
        return (fields + _DIGEST.pack(xxhash.xxh3_64_intdigest(fields))).ljust(HEADER_BYTES, b"\0")


def decode_header(data: bytes | memoryview, max_length: int) -> BlockHeader | None:
    """Return a slot's header, None if it was never written or is torn."""
    fields = data[: _FIELDS.size]
    if len(data) < HEADER_BYTES or fields[:8] != _MAGIC:
        return None
    if _DIGEST.unpack_from(data, _FIELDS.size)[0] != xxhash.xxh3_64_intdigest(fields):
        return None
    (
        _magic, version, state, tokens, incarnation, sequence, length, expires_at, pinned_until,
        checksum, key, parent, chain_bytes, chain_hash, tenant_bytes, tenant, routing_key,
    ) = _FIELDS.unpack(fields)  # fmt: skip
    facts = BlockFacts(
        key,
        length,
        chain_hash[:chain_bytes],
        # The struct pads an empty parent with zeros.
        parent if any(parent) else b"",
        tokens,
        tenant[:tenant_bytes].decode(errors="replace"),
        checksum,
        routing_key,
    )
    if version != _VERSION or facts.fault(max_length):
        return None
    return BlockHeader(facts, state == _STORED, incarnation, sequence, expires_at, pinned_until)


def restored_blocks(
    headers: Iterable[tuple[int, BlockHeader]], now_epoch_s: float
) -> tuple[list[tuple[int, BlockHeader]], dict[int, str]]:
    """Return slots with blocks to restore, oldest first, and slots with the tenants of remaining bytes.

    Of two headers with one key, the newer one is valid. Expired blocks are not restored.
    """
    newest: dict[bytes, tuple[int, BlockHeader]] = {}
    tenants: dict[int, str] = {}
    for slot, header in headers:
        tenants[slot] = header.facts.tenant
        known = newest.get(header.facts.key)
        alive = header.stored and header.expires_at > now_epoch_s
        if alive and (known is None or known[1].age_order < header.age_order):
            newest[header.facts.key] = slot, header
    # A block is linked only to a parent that was added before it (BlockTrees).
    return sorted(newest.values(), key=lambda item: item[1].age_order), tenants
