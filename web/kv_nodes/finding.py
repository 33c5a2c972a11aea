"""What the KV store page says first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from controlplane.kv_nodes.models.kv_node import KvNodeState
from controlplane.platform.format import byte_size, count, percent, short
from web.kv_nodes.node_rows import NodeRow, disk_is_full


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence, its shape, and the figures of all nodes that serve."""

    text: str
    shape: str
    blocks: str
    used: str
    hit_share: str
    asked: str
    sent: str
    corrupt: int
    repaired: int


def finding(rows: Sequence[NodeRow]) -> Finding:
    """Return what there is to say of these nodes."""
    text, shape = _sentence(rows)
    live = [row for row in rows if row.live]
    hits, misses = sum(row.hits for row in live), sum(row.report.misses for row in live)
    return Finding(
        text=text,
        shape=shape,
        blocks=short(sum(row.report.blocks for row in live)),
        used=byte_size(sum(tier.used_slots * row.slot_bytes for row in live for tier in row.report.tiers)),
        hit_share=percent(hits / (hits + misses) if hits + misses else None),
        asked=f"{short(hits + misses)} {'block' if hits + misses == 1 else 'blocks'}",
        sent=byte_size(sum(link.sent_bytes for row in live for link in row.report.links)),
        corrupt=sum(row.corrupt for row in live),
        repaired=sum(row.report.repaired for row in live),
    )


def _sentence(rows: Sequence[NodeRow]) -> tuple[str, str]:
    if not rows:
        return "No KV nodes", "removed"
    said = (
        ([row.name for row in rows if row.state == KvNodeState.SILENT], "{} is silent.", "{} are silent.", "lost"),
        ([row.name for row in rows if row.corrupt], *2 * ("Corrupt copies on {}.",), "degraded"),
        ([row.name for row in rows if row.live and disk_is_full(row)], *2 * ("Disk full on {}.",), "degraded"),
        ([row.name for row in rows if row.state == KvNodeState.DRAINING], "{} drains.", "{} drain.", "draining"),
    )
    for names, of_one, of_many, shape in said:
        if names:
            return (of_one if len(names) == 1 else of_many).format(_named(names)), shape
    serving = sum(row.state == KvNodeState.SERVING for row in rows)
    if serving == len(rows):
        return f"{count(serving, 'KV node')} {'serves' if serving == 1 else 'serve'}.", "serving"
    return f"{serving} of {count(len(rows), 'KV node')} serve.", "serving"


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
