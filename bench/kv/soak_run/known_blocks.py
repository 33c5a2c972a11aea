"""Blocks whose bytes, length, tenant, and parent follow from their names, so that any process can verify every get."""

from __future__ import annotations

import hashlib
import random
from functools import lru_cache

import msgspec

from kvstore.tiers.block_facts import BlockFacts, checksum_of

SECRET = "a secret of the nodes of one soak"  # noqa: S105 - of processes on this machine that end with the run
TENANTS = ("acme", "globex", "initech")
SHARED = 600
"""Blocks that all clients put, get, pull and pin."""
CHAIN = 8
"""Blocks in a prompt of one tenant."""
SLOT_BYTES = 16 << 10
MARK = b"bytes of a soak "
"""Prefix of every payload, to detect purged data that is still on a node."""


class KnownBlock(msgspec.Struct, frozen=True):
    """The expected content of a block."""

    facts: BlockFacts
    payload: bytes


def shared(number: int) -> str:
    """Return the name of a block that all clients use."""
    return f"shared-{number}"


def key_of(name: str) -> bytes:
    """Return a block's key."""
    return hashlib.sha256(name.encode()).digest()


@lru_cache(maxsize=2048)
def known(name: str) -> KnownBlock:
    """Return the block with this name, `<kind>-<number>`."""
    kind, _, number = name.rpartition("-")
    rng, index = random.Random(name), int(number)
    payload = MARK + rng.randbytes(rng.randrange(1, SLOT_BYTES - len(MARK)))
    parent = key_of(f"{kind}-{index - 1}") if index % CHAIN else b""
    facts = BlockFacts(
        key_of(name), len(payload), key_of(name), parent, 16, tenant_of(name), checksum_of(payload), index
    )
    return KnownBlock(facts, payload)


def tenant_of(name: str) -> str:
    """Return the tenant that owns a block."""
    return TENANTS[int(name.rpartition("-")[2]) // CHAIN % len(TENANTS)]
