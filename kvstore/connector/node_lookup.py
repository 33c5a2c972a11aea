"""Query the store (usually the engine's own node) for a prompt's leading blocks without blocking the engine."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import takewhile

from kvstore.backends.backend import KvBackend
from kvstore.connector.domain_keys import Domain, DomainKeys
from kvstore.keys.payload_key import PayloadFormat
from kvstore.tiers.block_facts import BlockFacts
from kvstore.transfer.connection import PeerError
from kvstore.transfer.frames import MAX_KEYS

_THREADS = 2


class NodeLookup:
    """Pending queries. Mutable state: `_asked` and `_named`, request → its pending answer and deadline."""

    def __init__(self, backend: KvBackend, timeout_s: float, payload_format: PayloadFormat) -> None:
        self._backend, self._timeout_s = backend, timeout_s
        self._format, self._keys = payload_format, DomainKeys(payload_format)
        self._threads = ThreadPoolExecutor(_THREADS, "kv-lookup")
        self._asked: dict[str, tuple[Future[int], float]] = {}
        self._named: dict[str, tuple[Future[list[bytes]], float]] = {}

    def __len__(self) -> int:
        return len(self._asked) + len(self._named)

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

    def chain(self, request_id: str, domain: Domain, routing_keys: Sequence[int], now: float) -> list[bytes] | None:
        """Return the engine's hashes of the leading blocks that the node holds, None while the answer is pending.

        Empty after the timeout. `routing_keys` are the gateway's, from the prompt's beginning.
        """
        asked = self._named.get(request_id)
        if asked is None:
            answer = self._threads.submit(self._chain, domain, list(routing_keys[:MAX_KEYS]))
            self._named[request_id] = (answer, now + self._timeout_s)
            return None
        answer, ends_at = asked
        if answer.done():
            return answer.result()
        return None if now < ends_at else []

    def forget(self, request_id: str) -> None:
        """Drop the answers of this request."""
        for asked in (self._asked.pop(request_id, None), self._named.pop(request_id, None)):
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

    def _chain(self, domain: Domain, routing_keys: list[int]) -> list[bytes]:
        try:
            facts = self._backend.describe(routing_keys)
        except (PeerError, TimeoutError):
            return []
        # In this thread, other names may be computed at the same time: the table of names is not shared.
        names = DomainKeys(self._format)
        # Only payloads of this engine's format, adapter, and salt: no other bytes fit its blocks.
        ours = {item.routing_key: item.chain_hash for item in facts if _is_ours(names, domain, item)}
        leading = takewhile(ours.__contains__, routing_keys)
        return [ours[key] for key in leading]


def _is_ours(names: DomainKeys, domain: Domain, facts: BlockFacts) -> bool:
    try:
        return names.keys(domain, [facts.chain_hash]) == [facts.key]
    except ValueError:
        return False
