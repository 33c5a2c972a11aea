"""Node managers as a store: blocks go to the first node that takes them and come from any that has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvstore.tiers.block_facts import BlockFacts
from kvstore.transfer.connection import PeerError
from kvstore.transfer.frames import CacheHint, Done, Held, Lookup, Purge
from kvstore.transfer.transfer_client import TransferClient, Wanted


class NodeBackend:
    """A client of some nodes, the nearest first."""

    def __init__(self, addresses: Sequence[str], secret: bytes, clock: Callable[[], float]) -> None:
        self._addresses = addresses
        self._client = TransferClient(secret, clock)

    def put(
        self, blocks: Sequence[tuple[BlockFacts, memoryview]], hint: CacheHint = "default", pin_s: float = 0.0
    ) -> bool:
        """Store blocks on the first node that takes them."""
        for address in self._addresses:
            try:
                if isinstance(self._client.put(address, blocks, hint, pin_s), Done):
                    return True
            except (PeerError, TimeoutError):
                continue
        return False

    def get(self, wanted: Sequence[tuple[bytes, memoryview | None]]) -> list[memoryview | None]:
        """Return blocks from whichever node has them."""
        found = self._client.get(self._addresses, [Wanted(key, into) for key, into in wanted])
        return [each.payload if each else None for each in found]

    def exist(self, keys: Sequence[bytes]) -> list[bool]:
        """Return which blocks some node has."""
        there = [False] * len(keys)
        for address in self._addresses:
            try:
                answer = self._client.call(address, Lookup(list(keys)))
            except PeerError:
                continue
            if isinstance(answer, Held):
                there = [known or length > 0 for known, (length, _) in zip(there, answer.blocks, strict=True)]
        return there

    def purge(self, tenant: str) -> bool:
        """Purge a tenant on every node."""
        done = 0
        for address in self._addresses:
            try:
                done += isinstance(self._client.call(address, Purge(tenant)), Done)
            except PeerError:
                continue
        return done == len(self._addresses)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
