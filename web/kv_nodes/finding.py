"""The first sentence of the KV store page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from controlplane.kv_nodes.models.kv_node import KvNodeState
from controlplane.platform.format import count, some_names
from web.kv_nodes.node_rows import NodeRow


def finding(rows: Sequence[NodeRow]) -> dict[str, Any]:
    """Return one sentence about these nodes, its shape, and the totals of all serving nodes."""
    text, shape = _sentence(rows)
    live = [row for row in rows if row.live]
    hits, misses = sum(row.hits for row in live), sum(row.report.misses for row in live)
    return {
        "text": text,
        "shape": shape,
        "blocks": sum(row.report.blocks for row in live),
        "used": sum(tier.used_slots * row.slot_bytes for row in live for tier in row.report.tiers),
        "hits": hits,
        "asked": hits + misses,
        "sent": sum(link.sent_bytes for row in live for link in row.report.links),
        "corrupt": sum(row.corrupt for row in live),
        "repaired": sum(row.report.repaired for row in live),
    }


def _sentence(rows: Sequence[NodeRow]) -> tuple[str, str]:
    if not rows:
        return "No KV nodes", "removed"
    short = [row.name for row in rows if row.live and row.disk_is_full]
    said = (
        ([row.name for row in rows if row.state == KvNodeState.SILENT], "{} is silent.", "{} are silent.", "lost"),
        ([row.name for row in rows if row.corrupt], *2 * ("Corrupt copies on {}.",), "degraded"),
        (short, *2 * ("No disk space for the whole tier on {}.",), "degraded"),
        ([row.name for row in rows if row.state == KvNodeState.DRAINING], "{} drains.", "{} drain.", "draining"),
    )
    for names, of_one, of_many, shape in said:
        if names:
            return (of_one if len(names) == 1 else of_many).format(some_names(names, 3)), shape
    serving = sum(row.state == KvNodeState.SERVING for row in rows)
    if serving == len(rows):
        return f"{count(serving, 'KV node')} {'serves' if serving == 1 else 'serve'}.", "serving"
    return f"{serving} of {count(len(rows), 'KV node')} serve.", "serving"
