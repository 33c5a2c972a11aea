"""Whether caches that are smaller below engine memory would pay, by how busy the nodes' disks are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from controlplane.platform.format import percent
from planning.kv_orders.compression_advice import compression_advice
from web.kv_nodes.node_rows import NodeRow


@dataclass(frozen=True, slots=True)
class CompressionRow:
    """One node with an SSD tier."""

    node: str
    busy: str
    """Share of the last minute in which its disk read or wrote blocks."""
    latency: str
    """Expected with compression over without."""
    pays: bool
    reads: bool
    """Whether anything was read from its disk at all."""


def compression_rows(nodes: Sequence[NodeRow]) -> tuple[CompressionRow, ...]:
    """Return the advice for each node that reports an SSD tier, the busiest first."""
    rows = [(node, tier) for node in nodes if node.live for tier in node.report.tiers if tier.medium == "STORAGE"]
    rows.sort(key=lambda each: (-each[0].report.disk_busy, each[0].name))
    return tuple(_row(node, hits=tier.hits) for node, tier in rows)


def _row(node: NodeRow, *, hits: int) -> CompressionRow:
    advice = compression_advice(node.report.disk_busy)
    return CompressionRow(
        node=node.name,
        busy=percent(advice.disk_busy),
        latency=f"{advice.latency_ratio:.2f} ×",
        pays=advice.pays and hits > 0,
        reads=hits > 0,
    )
