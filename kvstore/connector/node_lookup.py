"""Query the store (usually the engine's own node) for a prompt's leading blocks without blocking the engine."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from kvstore.backends.backend import KvBackend
from kvstore.connector.domain_keys import Domain, DomainKeys
from kvstore.keys.payload_key import PayloadFormat
from kvstore.transfer.connection import PeerError
from kvstore.transfer.frames import MAX_KEYS

_THREADS = 2


class NodeLookup:
    """Pending queries. Mutable state: `_asked`, request → its pending answer and deadline."""

    def __init__(self, backend: KvBackend, timeout_s: float, payload_format: PayloadFormat) -> None:
        self._backend, self._timeout_s = backend, timeout_s
        self._keys = DomainKeys(payload_format)
        self._threads = ThreadPoolExecutor(_THREADS, "kv-lookup")
        self._asked: dict[str, tuple[Future[int], float]] = {}

    def __len__(self) -> int:
        return len(self._asked)

    def blocks(self, request_id: str, domain: Domain, chain_hashes: Sequence[bytes], now: float) -> int | None:
        """Return how many leading blocks the node holds, 0 on timeout, None while the answer is pending."""
        if not chain_hashes:
            return 0
        asked = self._asked.get(request_id)
        if asked is None:
            keys = self._keys.keys(domain, [bytes(chain_hash_) for chain_hash_ in chain_hashes[:MAX_KEYS]])
            self._asked[request_id] = (self._threads.submit(self._ask, keys), now + self._timeout_s)
            return None
        answer, ends_at = asked
        if answer.done():
            return answer.result()
        return None if now < ends_at else 0

    def forget(self, request_id: str) -> None:
        """Drop the answer of this request."""
        asked = self._asked.pop(request_id, None)
        if asked is not None:
            asked[0].cancel()

    def close(self) -> None:
        """Send no more queries, and close the connections."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._backend.close()

    def _ask(self, keys: list[bytes]) -> int:
        try:
            there = self._backend.exist(keys)
        # A node that does not answer costs hits only: the engine computes the blocks.
        except (PeerError, TimeoutError):
            return 0
        return next((index for index, known in enumerate(there) if not known), len(there))
