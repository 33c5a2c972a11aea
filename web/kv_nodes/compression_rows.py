"""Whether compressing caches below engine memory would pay off, judged by the load of the nodes' disks."""

from __future__ import annotations

from collections.abc import Sequence

from planning.kv_moves.compression_advice import CompressionAdvice, compression_advice
from web.kv_nodes.node_rows import NodeRow


def compression_rows(nodes: Sequence[NodeRow]) -> list[tuple[NodeRow, CompressionAdvice, int]]:
    """Return node, advice, and reads of each node that reports an SSD tier, the busiest first.

    Compression gains nothing on a node that read nothing.
    """
    rows = [
        (node, compression_advice(node.report.disk_busy), tier.hits)
        for node in nodes
        if node.live
        for tier in node.report.tiers
        if tier.medium == "STORAGE"
    ]
    return sorted(rows, key=lambda row: (-row[1].disk_busy, row[0].name))
