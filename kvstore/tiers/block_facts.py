"""A node's facts about one payload in any tier."""

from __future__ import annotations

from typing import Literal

import msgspec
import xxhash

from kvstore.keys.payload_key import KEY_BYTES, MAX_CHAIN_BYTES

Medium = Literal["CPU", "STORAGE"]
"""Tiers, named as in the engines' KV events (vLLM): the machine's DRAM and its SSD."""
DRAM: Medium = "CPU"
SSD: Medium = "STORAGE"
CHECKSUM_BYTES = 16
MAX_TENANT_BYTES = 64


class BlockFacts(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One payload: its key (kvstore.keys.payload_key), size, and position in its prompt."""

    key: bytes
    length: int
    chain_hash: bytes = b""
    """The engine's hash of the block in KV events. Empty if no event names the block."""
    parent: bytes = b""
    """Key of the preceding payload in the prompt, empty at the start of the prompt."""
    tokens: int = 0
    tenant: str = ""
    checksum: bytes = b""
    """xxh3_128 of the bytes, empty until they are written."""
    routing_key: int = 0
    """The gateway's 64-bit key of the block for finding its holders, 0 if the gateway sent none."""

    def fault(self, max_length: int) -> str:
        """Return the error in facts received over the network, empty if there is none."""
        if len(self.key) != KEY_BYTES or len(self.parent) not in (0, KEY_BYTES) or self.parent == self.key:
            return f"a key is not of {KEY_BYTES} bytes, or a block is its own parent"
        if len(self.chain_hash) > MAX_CHAIN_BYTES or len(self.checksum) not in (0, CHECKSUM_BYTES):
            return "an engine hash or a checksum has a wrong length"
        if not 0 < self.length <= max_length:
            return f"a block has 1 to {max_length} bytes here, not {self.length}"
        if not 0 <= self.routing_key < 1 << 64:
            return "a routing key has 64 bits"
        if not 0 <= self.tokens < 1 << 32 or len(self.tenant.encode()) > MAX_TENANT_BYTES:
            return f"a tenant's name has at most {MAX_TENANT_BYTES} bytes, and tokens are counted with 32 bits"
        return ""


def checksum_of(payload: bytes | bytearray | memoryview) -> bytes:
    """Return the xxh3_128 of a payload (16 bytes)."""
    return xxhash.xxh3_128_digest(payload)
