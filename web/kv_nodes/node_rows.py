"""One node manager in the form of the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import msgspec

from controlplane.kv_nodes.models.kv_node import LIVE, KvNode, KvNodeState
from controlplane.platform.format import count, some_names
from kvstore.node.node_report import NodeReport, TierReport
from planning.kv_moves.compression_advice import CompressionAdvice, compression_advice
from routing.values.prepared_struct import prepared


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


SHAPES = {
    KvNodeState.SERVING: "serving",
    KvNodeState.DRAINING: "draining",
    KvNodeState.GONE: "removed",
    KvNodeState.SILENT: "lost",
}
_UNTOLD = NodeReport()
_MEDIA = (("CPU", "DRAM"), ("STORAGE", "SSD"))


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One node; counters start when the node starts."""

    name: str
    address: str
    state: KvNodeState
    slot_bytes: int
    report: NodeReport = _UNTOLD
    reported_at: datetime | None = None
    unpin: tuple[Mapping[str, str], ...] = ()
    """Pins that an operator has ended."""

    @property
    def shape(self) -> str:
        """The shape before the state word."""
        return SHAPES[self.state]

    @property
    def live(self) -> bool:
        """Whether the node reports. A reporting node would reappear at once after being deleted."""
        return self.state in LIVE

    @property
    def hits(self) -> int:
        """Number of blocks read from either tier."""
        return sum(tier.hits for tier in self.report.tiers)

    @property
    def corrupt(self) -> int:
        """Number of copies whose checksum did not match."""
        return sum(tier.corrupt for tier in self.report.tiers)

    @property
    def disk_is_full(self) -> bool:
        """Whether a disk lacks space for its full tier."""
        return any(tier.withheld_slots for tier in self.report.tiers)

    @property
    def tiers(self) -> list[tuple[str, TierReport | None, int, int]]:
        """Name, counts (None without such a tier), allocated slots, and percent in use of each tier."""
        reports = {tier.medium: tier for tier in reversed(self.report.tiers) if tier.slots}
        sizes = {medium: tier.slots - tier.withheld_slots for medium, tier in reports.items()}
        return [
            (name, reports[medium], sizes[medium], round(100 * reports[medium].used_slots / max(1, sizes[medium])))
            if medium in reports
            else (name, None, 0, 0)
            for medium, name in _MEDIA
        ]

    def age_s(self, now: datetime) -> float:
        """Return the age of the node's report in seconds."""
        return (now - self.reported_at).total_seconds() if self.reported_at is not None else 0.0


def node_row(node: KvNode) -> NodeRow:
    """Return a node's row; without counts if the node never reported, or in a format that this program cannot read."""
    row = NodeRow(node.name, node.address, KvNodeState(node.state), node.slot_bytes)
    report = getattr(node, "report", None)
    return (
        row
        if report is None
        else replace(row, report=_report(report.content), reported_at=report.received_at, unpin=report.unpin)
    )


def _report(content: object) -> NodeReport:
    try:
        return msgspec.convert(content, prepared(NodeReport))
    except msgspec.ValidationError:
        return _UNTOLD
