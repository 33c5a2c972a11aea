"""The node managers that represent those of a pool: the size of each, and each engine's node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median_low

from controlplane.fleet.models.engine import Engine
from controlplane.kv_nodes.models.kv_node import LIVE, KvNode
from simulator.kv_nodes.kv_nodes_spec import KvNodesSpec


def stand_in_nodes(engines: Sequence[Engine], block_tokens: int) -> KvNodesSpec | None:
    """Return alike nodes of the median size of those that the pool's engines have; None where they have none.

    A slot holds one block. Speeds of links and disks are the simulated ones: 100 Gbit/s, and a 7B model's KV.
    """
    names = {engine.kv_node for engine in engines if engine.kv_node}
    nodes = {node.name: node for node in KvNode.objects.filter(name__in=names, state__in=LIVE)}
    if not nodes:
        return None
    numbers = {name: number for number, name in enumerate(sorted(nodes))}
    return KvNodesSpec(
        nodes=len(nodes),
        dram_tokens=_median_tokens(nodes, "dram_bytes", block_tokens),
        ssd_tokens=_median_tokens(nodes, "ssd_bytes", block_tokens),
        homes=tuple(numbers.get(engine.kv_node, -1) for engine in engines),
    )


def _median_tokens(nodes: Mapping[str, KvNode], size: str, block_tokens: int) -> int:
    return median_low(getattr(node, size) // max(1, node.slot_bytes) * block_tokens for node in nodes.values())
