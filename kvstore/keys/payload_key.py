"""Keys of stored KV payloads, covering everything that must agree before one engine can load another's blocks.

A wrong match would yield wrong tokens, so the key is a SHA-256 over the engine's hash chain (which covers the tokens up
to and including the block) and over each fact that determines the meaning of the bytes.
"""

from __future__ import annotations

import hashlib

import msgspec

KEY_BYTES = 32
MIN_CHAIN_BYTES, MAX_CHAIN_BYTES = 16, 32
"""Engines can also publish 64-bit hashes, which two prompts can share. Those are rejected."""


class PayloadFormat(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Meaning of a block's bytes besides its tokens, shared by all blocks of one rank of one engine."""

    model: str
    weight_revision: str
    kv_dtype: str
    kv_layout: str
    block_tokens: int
    tp_rank: int = 0
    tp_size: int = 1
    lora: str = ""
    """Name and revision of the adapter, empty without one."""
    isolation_domain: str = ""
    """The salt under which the engine keeps the blocks, empty for the shared domain."""


class PayloadKeys:
    """Computes the keys of one format, which is hashed once."""

    def __init__(self, payload_format: PayloadFormat) -> None:
        if not 0 <= payload_format.tp_rank < payload_format.tp_size:
            raise ValueError(f"rank {payload_format.tp_rank} is not one of {payload_format.tp_size}")
        if payload_format.block_tokens < 1:
            raise ValueError(f"a block has at least 1 token, not {payload_format.block_tokens}")
        self._format = hashlib.sha256(b"headway kv payload 1\0")
        for value in msgspec.structs.astuple(payload_format):
            field = str(value).encode()
            # Lengths are hashed too, so that no two formats collide.
            self._format.update(len(field).to_bytes(4, "big") + field)

    def key(self, chain_hash: bytes) -> bytes:
        """Return the 32-byte key of the block with this engine hash. Raises ValueError if the hash is too short."""
        if not MIN_CHAIN_BYTES <= len(chain_hash) <= MAX_CHAIN_BYTES:
            raise ValueError(
                f"an engine hash of {MIN_CHAIN_BYTES} to {MAX_CHAIN_BYTES} bytes is needed, not of {len(chain_hash)}"
            )
        digest = self._format.copy()
        digest.update(len(chain_hash).to_bytes(4, "big") + chain_hash)
        return digest.digest()
