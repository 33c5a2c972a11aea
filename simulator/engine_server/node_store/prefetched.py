"""Blocks that the engine has prefetched from its node, until a request uses them. They count beside its cache."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from kvstore.connector.engine_params import LoadInstruction
from kvstore.events.kv_events import BlockRemoved, BlockStored, KvEvent
from kvstore.events.node_blocks import extra_key
from kvstore.tiers.block_facts import BlockFacts

SHARE = 0.1
"""Share of the engine's blocks for prefetched ones."""


class PrefetchedBlocks:
    """Mutable state: `_held`, name of a payload → (the gateway's key, rank), and `_events` that were not taken yet.

    Names of payloads differ between isolation domains.
    """

    def __init__(self, blocks: int, block_tokens: int) -> None:
        self._most, self._block_tokens = int(SHARE * blocks), block_tokens
        self._held: dict[bytes, tuple[int, int]] = {}
        self._events: list[KvEvent] = []

    def __len__(self) -> int:
        return len(self._held)

    def lacking(self, order: LoadInstruction, facts: Sequence[BlockFacts]) -> list[BlockFacts]:
        """Return the leading blocks to load for an order, as many as there is space for.

        Blocks of higher ranks are dropped for them. `facts` are the node's, of this engine's payloads only.
        """
        there = {item.routing_key: item for item in facts}
        leading = takewhile(there.__contains__, order.routing_keys()[: order.load_blocks])
        new = [there[key] for key in leading if there[key].key not in self._held][: self._most]
        rank = order.prefetch_rank or 0
        lower = sorted((kept, name) for name, (_, kept) in self._held.items() if kept > rank)
        self.drop([name for _, name in lower[::-1][: max(0, len(self._held) + len(new) - self._most)]])
        return new[: self._most - len(self._held)]

    def keep(self, loaded: Sequence[BlockFacts], rank: int) -> None:
        """Keep loaded blocks."""
        if loaded:
            self._held.update({item.key: (item.routing_key, rank) for item in loaded})
            named = [extra_key(item.routing_key, item.key) for item in loaded]
            hashes = [item.key for item in loaded]
            self._events.append(BlockStored([*hashes], None, [], self._block_tokens, extra_keys=named))

    def use(self, names: Sequence[bytes]) -> int:
        """Return how many leading blocks are held. They become the request's, and are no longer kept here."""
        used = [*takewhile(self._held.__contains__, names)]
        self.drop(used)
        return len(used)

    def drop(self, names: Sequence[bytes]) -> None:
        """Drop blocks."""
        for name in names:
            del self._held[name]
        if names:
            self._events.append(BlockRemoved([*names]))

    def take_events(self) -> list[KvEvent]:
        """Return the events since the last call."""
        events, self._events = self._events, []
        return events
