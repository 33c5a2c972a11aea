"""Node managers as the store: blocks are saved on the engine's own node, and loaded from any node named in an order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvstore.backends.backend import BackendSettings
from kvstore.tiers.block_facts import BlockFacts
from kvstore.transfer.connection import PeerError
from kvstore.transfer.flow_control import FlowPriority
from kvstore.transfer.frames import CacheHint, Describe, Done, Held, Lookup, PageOf, Pin
from kvstore.transfer.transfer_client import Received, TransferClient, TransferSettings, Wanted


class NodeBackend:
    """A client of nodes."""

    def __init__(self, settings: BackendSettings, clock: Callable[[], float]) -> None:
        self._node = settings.address
        limits = TransferSettings(timeout_s=settings.timeout_s)
        self._client = TransferClient(settings.keyring, clock, settings.tls, limits)

    def put(
        self, blocks: Sequence[tuple[BlockFacts, memoryview]], hint: CacheHint = "default", pin_s: float = 0.0
    ) -> bool:
        """Store all blocks or none, at lower priority than loads of requests."""
        return isinstance(self._client.put(self._node, blocks, hint, pin_s, FlowPriority.REPLICATION), Done)

    def get(
        self, wanted: Sequence[Wanted], holders: Sequence[str] = (), priority: FlowPriority = FlowPriority.REQUEST
    ) -> Received:
        """Return the blocks whose checksums match."""
        return self._client.get(holders or [self._node], wanted, priority)

    def stream(
        self, wanted: Sequence[Wanted], holders: Sequence[str], ends: Sequence[int], arrived: Callable[[int], None]
    ) -> Received:
        """Return the blocks whose checksums match, read in parts."""
        return self._client.stream(holders[0] if holders else self._node, wanted, ends, arrived)

    def exist(self, keys: Sequence[bytes]) -> list[bool]:
        """Return which blocks the engine's own node holds."""
        answer = self._client.call(self._node, Lookup(list(keys)))
        if not isinstance(answer, Held):
            raise PeerError("the node sent an unexpected response to a lookup")
        return [length >= 0 for length, _ in answer.blocks]

    def describe(self, routing_keys: Sequence[int]) -> list[BlockFacts]:
        """Return what the engine's own node knows of these blocks."""
        answer = self._client.call(self._node, Describe(list(routing_keys)))
        if not isinstance(answer, PageOf):
            raise PeerError("the node sent an unexpected response to a description")
        return [facts for facts, _ in answer.blocks]

    def pin(self, keys: Sequence[bytes], seconds: float) -> None:
        """Pin blocks, within the tenant's quota."""
        self._client.call(self._node, Pin(list(keys), seconds))

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
