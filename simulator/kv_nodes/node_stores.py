"""The contents of a fleet's node managers, and the production ledger that follows their events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from routing.ledger.node_holdings import NodeHoldings
from routing.ledger.node_loads import NodeLoads
from simulator.kv_nodes.node_cache import NodeCache


class NodeStores:
    """The nodes' caches by name, and what the router knows of them. Mutable: both."""

    def __init__(
        self, nodes: Sequence[str], dram_blocks: int, ssd_blocks: int, block_bytes: int, *, eviction: str = "leaf_lru"
    ) -> None:
        self.block_bytes = block_bytes
        self.caches = {node: NodeCache(dram_blocks, ssd_blocks, eviction=eviction) for node in nodes}
        self.ledger = NodeLoads(NodeHoldings())
        for node in nodes:
            self.ledger.holdings.join(node)
            self.ledger.holdings.complete(node)

    def set_homes(self, homes: Mapping[str, str]) -> None:
        """Set each engine's own node."""
        self.ledger.set_nodes(homes, dict.fromkeys(self.caches, self.block_bytes))

    def publish_changes(self, node: str) -> Mapping[int, tuple[bool, bool]]:
        """Pass a node's changes to the ledger, as the node's events do shortly afterwards in production.

        Returns the changed blocks: whether each is held, and whether in DRAM.
        """
        changed = self.caches[node].take_changed()
        holdings = self.ledger.holdings
        holdings.removed(node, [key for key, (held, _) in changed.items() if not held])
        for dram in (True, False):
            holdings.stored(node, [key for key, state in changed.items() if state == (True, dram)], dram=dram)
        return changed

    def check(self) -> None:
        """Raise AssertionError if a part is inconsistent."""
        self.ledger.holdings.check()
        for cache in self.caches.values():
            cache.check()
