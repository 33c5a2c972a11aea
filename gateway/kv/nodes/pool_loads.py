"""Loads that one pool's engines can do from node managers, and the costs learned from them."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

from gateway.contracts.snapshot import EngineEntry, PoolEntry
from kvstore.connector.engine_params import MAX_BLOCKS, LoadInstruction, packed_keys
from kvstore.tiers.block_facts import MAX_TENANT_BYTES
from routing.ledger.node_loads import NodeLoads

if TYPE_CHECKING:
    from gateway.base.metrics import GatewayMetrics
    from gateway.kv.nodes.kv_nodes import KvNodes
    from kvstore.connector.stated_hint import StatedHint

_EXACT = "exact"


class PoolLoads:
    """Loads of one pool. Mutable: `follows`, and the learned costs."""

    def __init__(self, nodes: KvNodes, metrics: GatewayMetrics) -> None:
        self.learned = NodeLoads(nodes.holdings)
        self.metrics = metrics
        self.nodes = nodes
        self.follows = False
        """Whether any engine of the pool has a node manager."""
        self._exact, self._block_tokens = False, 1

    def follow(self, entry: PoolEntry, engines: Sequence[EngineEntry]) -> NodeLoads | None:
        """Apply a new version of the pool; return the loads that routing can count on, None if there are none.

        Keys of byte blocks reveal nothing about the engines' blocks, so such pools load nothing.
        """
        homes = {engine.engine_id: engine.kv_node for engine in engines if engine.kv_node}
        self.learned.set_nodes(homes, self.nodes.slot_bytes())
        self.follows, self._exact, self._block_tokens = bool(homes), entry.key_source == _EXACT, entry.block_tokens
        return self.learned if homes and self._exact else None

    def has_node(self, engine_id: str) -> bool:
        """Return whether a node manager stores what the engine computes."""
        return engine_id in self.learned.homes

    def order_of(self, keys: Sequence[int], tenant_id: str, stated: StatedHint) -> LoadInstruction:
        """Return the part of a prompt's load instruction that is the same for all engines of the pool."""
        packed = packed_keys(keys) if self._exact and keys else ""
        first, end = stated.blocks(self._block_tokens)
        return LoadInstruction(
            keys=packed,
            tenant=tenant_of(tenant_id),
            hint=stated.hint,
            hint_from=min(first, MAX_BLOCKS),
            hint_to=min(end, MAX_BLOCKS),
            pin_s=stated.pin_s,
        )

    def with_load(self, order: LoadInstruction, blocks: int, holders: Sequence[str]) -> tuple[LoadInstruction, str]:
        """Return (the instruction with the decided load, its first node); "" if no node is available."""
        addresses = self.nodes.addresses(holders)
        if not addresses:
            return order, ""
        return msgspec.structs.replace(order, load_blocks=blocks, holders=addresses), self.nodes.name_at(addresses[0])


def tenant_of(tenant_id: str) -> str:
    """Return the name under which nodes count a tenant's blocks: its id, or a digest if the id is too long."""
    name = tenant_id.encode()
    return tenant_id if len(name) <= MAX_TENANT_BYTES else blake2b(name, digest_size=MAX_TENANT_BYTES // 2).hexdigest()
