"""The simulated engine's KV: bytes derived from the tokens, so that a wrong block is detected.

A block's hash is SHA-256 over the previous hash and the block's tokens, as in vLLM's chain. Its payload is the hash,
followed by a fixed pad of pseudo-random bytes that is rotated by the hash, so that a payload is created only by
copying.
"""

from __future__ import annotations

import hashlib
from array import array
from functools import lru_cache

from kvstore.keys.block_keys import TOKEN_BYTES, pack_tokens
from kvstore.keys.payload_key import PayloadFormat, PayloadKeys

_ROOT = hashlib.sha256(b"headway simulated KV 1").digest()


def chain_hashes(tokens: array[int], block_tokens: int, blocks: int) -> list[bytes]:
    """Return the hashes of the first `blocks` full blocks."""
    view = memoryview(pack_tokens(tokens[: blocks * block_tokens]))
    width = block_tokens * TOKEN_BYTES
    hashes, parent = [], _ROOT
    for block in range(blocks):
        parent = hashlib.sha256(parent + view[block * width : (block + 1) * width]).digest()
        hashes.append(parent)
    return hashes


class Payloads:
    """The payloads of one model's blocks; `bytes_per_token` is far less than a real model's, like the link rates."""

    def __init__(self, model: str, block_tokens: int, bytes_per_token: int) -> None:
        self._model, self.block_tokens, self._bytes_per_token = model, block_tokens, bytes_per_token
        self.block_bytes = max(len(_ROOT), block_tokens * bytes_per_token)
        self._pad = hashlib.shake_128(b"headway simulated KV pad").digest(self.block_bytes)
        # Per instance: as a decorator of the method, the cache would keep every instance alive.
        self.keys = lru_cache(maxsize=1024)(self._keys)

    def payload(self, chain_hash: bytes) -> memoryview:
        """Return the bytes of a block."""
        turn = int.from_bytes(chain_hash[:8], "big") % len(self._pad)
        return memoryview((chain_hash + self._pad[turn:] + self._pad[:turn])[: self.block_bytes])

    def _keys(self, salt: str) -> PayloadKeys:
        """Return the block names in an isolation domain."""
        return PayloadKeys(
            PayloadFormat(
                model=self._model,
                weight_revision="simulated",
                kv_dtype="simulated",
                kv_layout=f"{self._bytes_per_token} bytes per token",
                block_tokens=self.block_tokens,
                isolation_domain=salt,
            )
        )
