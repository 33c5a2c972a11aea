"""Names of stored KV payloads: everything that must agree before one engine may load another's blocks.

A wrong match would be a wrong token, so the key is SHA-256 over the engine's hash chain (which covers the tokens up to
and in the block) and over each fact that gives the bytes their meaning.
"""

from __future__ import annotations

import hashlib

import msgspec

KEY_BYTES = 32
MIN_CHAIN_BYTES, MAX_CHAIN_BYTES = 16, 32
"""Engines also publish hashes of 64 bits, which two prompts may share; those are rejected."""


class PayloadFormat(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Meaning of a block's bytes besides its tokens; all blocks of one rank of one engine share it."""

    model: str
    weight_revision: str
    kv_dtype: str
    kv_layout: str
    block_tokens: int
    tp_rank: int = 0
    tp_size: int = 1
    lora: str = ""
    """Name and revision of the adapter; empty: none."""
    isolation_domain: str = ""
    """The salt under which the engine keeps the blocks; empty: the shared domain."""


class PayloadKeys:
    """Makes the keys of one format; the format is hashed once."""

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
        """Return the 32 bytes that name the block with this engine hash; raises ValueError on a hash too short."""
        if not MIN_CHAIN_BYTES <= len(chain_hash) <= MAX_CHAIN_BYTES:
            raise ValueError(
                f"an engine hash of {MIN_CHAIN_BYTES} to {MAX_CHAIN_BYTES} bytes is needed, not of {len(chain_hash)}"
            )
        digest = self._format.copy()
        digest.update(len(chain_hash).to_bytes(4, "big") + chain_hash)
        return digest.digest()
