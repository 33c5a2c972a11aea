"""Pages of an engine's host memory in the store, named by chained hashes, for an engine that moves them itself."""

from __future__ import annotations

from collections.abc import Sequence

from kvstore.backends.backend import KvBackend
from kvstore.keys.payload_key import PayloadFormat, PayloadKeys
from kvstore.tiers.block_facts import BlockFacts, checksum_of
from kvstore.transfer.connection import PeerError
from kvstore.transfer.transfer_client import Wanted

_PIECE_BYTES = 8 << 20


class PageStore:
    """Pages of one rank, for any number of threads. A store that does not answer has no pages and takes none."""

    def __init__(self, backend: KvBackend, payload_format: PayloadFormat) -> None:
        self._backend, self._tokens = backend, payload_format.block_tokens
        self._keys = PayloadKeys(payload_format)

    def leading(self, hashes: Sequence[str]) -> int:
        """Return how many of the first pages the store holds."""
        try:
            there = self._backend.exist([self._key(item) for item in hashes])
        except (PeerError, TimeoutError):
            return 0
        return there.index(False) if False in there else len(there)

    def load(self, hashes: Sequence[str], pages: Sequence[memoryview]) -> list[bool]:
        """Fill pages, and return which are whole. The contents of others are undefined."""
        wanted = [Wanted(self._key(item), page) for item, page in zip(hashes, pages, strict=True)]
        try:
            blocks = self._backend.get(wanted).blocks
        except (PeerError, TimeoutError):
            return [False] * len(pages)
        return [
            block is not None and len(block.payload) == len(page) for block, page in zip(blocks, pages, strict=True)
        ]

    def save(self, hashes: Sequence[str], pages: Sequence[memoryview], previous: str = "") -> list[bool]:
        """Store pages that follow the `previous` one, and return which the store then has. All have one size."""
        keys = [self._key(item) for item in hashes]
        parents = [self._key(previous) if previous else b"", *keys]
        done: list[bool] = []
        piece = max(1, _PIECE_BYTES // max(1, len(pages[0]))) if pages else 1
        try:
            for first in range(0, len(keys), piece):
                held = self._backend.exist(keys[first : first + piece])
                blocks = []
                for index in (index for index, there in enumerate(held, first) if not there):
                    page, name = pages[index], bytes.fromhex(hashes[index])
                    facts = (keys[index], len(page), name, parents[index], self._tokens, "", checksum_of(page))
                    blocks.append((BlockFacts(*facts), page))
                stored = not blocks or self._backend.put(blocks)
                done += [there or stored for there in held]
        # Storing is best effort: the engine offers a page again when it is evicted next.
        except (PeerError, TimeoutError):
            pass
        return done + [False] * (len(keys) - len(done))

    def close(self) -> None:
        """Close the connections."""
        self._backend.close()

    def _key(self, page_hash: str) -> bytes:
        return self._keys.key(bytes.fromhex(page_hash))
