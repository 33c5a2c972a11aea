"""Block keys of prompts whose beginnings were tokenized before, for use when the tokenizer is late.

A prompt's bytes are split into chunks with chained digests, so that a digest identifies everything up to it. Each chunk
of a tokenized prompt stores the keys of the blocks that end in it, assuming that tokens are spread evenly over the
bytes. A later prompt gets the keys of its leading chunks. No text is stored.
"""

from __future__ import annotations

import os
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from kvstore.keys.block_keys import byte_block_keys

CHUNK_BYTES = 512
"""About 128 tokens: several blocks of most engines."""
READ_BYTES = 1024 * 1024
"""Bytes read of a prompt, in one event loop step."""


class Prefix(NamedTuple):
    """The keys of a prompt's leading blocks, and an estimate of its length in tokens."""

    keys: tuple[int, ...]
    prompt_tokens: int


class _Chunk(NamedTuple):
    """Keys of the blocks that end in a chunk. The first key is that of the prompt's block `first`."""

    first: int
    keys: array[int]
    tokens_per_byte: float


class KnownPrefixes:
    """Chunks by digest. Mutable: the chunks, at most `max_chunks`; the least recently used is dropped first."""

    def __init__(self, *, max_chunks: int = 32_768) -> None:
        self._max_chunks = max_chunks
        self._process_key = os.urandom(16)
        self._chunks: OrderedDict[int, _Chunk] = OrderedDict()

    def __len__(self) -> int:
        return len(self._chunks)

    def learn(self, name: bytes, seed: int, data: bytes, block_tokens: int, keys: Sequence[int], tokens: int) -> None:
        """Learn a tokenized prompt: its bytes, block keys and length. `name` identifies the pool and the kind."""
        per_byte, first = tokens / max(1, len(data)), 0
        for number, digest in enumerate(self._digests(name, seed, data), 1):
            end = min(int(number * CHUNK_BYTES * per_byte) // block_tokens, len(keys))
            self._chunks[digest] = _Chunk(first, array("Q", keys[first:end]), per_byte)
            self._chunks.move_to_end(digest)
            first = end
        while len(self._chunks) > self._max_chunks:
            self._chunks.popitem(last=False)

    def find(self, name: bytes, seed: int, data: bytes, block_tokens: int) -> Prefix | None:
        """Return the known beginning of a prompt, None if it covers no complete block."""
        keys, per_byte = list[int](), 0.0
        for digest in self._digests(name, seed, data):
            chunk = self._chunks.get(digest)
            # Chunks of different prompts divide the blocks differently, which may leave a gap between them.
            if chunk is None or chunk.first > len(keys):
                break
            self._chunks.move_to_end(digest)
            keys[chunk.first :], per_byte = chunk.keys, chunk.tokens_per_byte
        if not keys:
            return None
        # One token more, because the block that the last token ends has no key (prompt_keys).
        return Prefix(tuple(keys), max(int(len(data) * per_byte), len(keys) * block_tokens + 1))

    def _digests(self, name: bytes, seed: int, data: bytes) -> tuple[int, ...]:
        begin = xxh3_64_intdigest(self._process_key + name, seed)
        return byte_block_keys(begin, data[:READ_BYTES], CHUNK_BYTES)

    def check(self) -> None:
        """Raise AssertionError if there are too many chunks."""
        if len(self._chunks) > self._max_chunks:
            raise AssertionError("too many chunks are known")
