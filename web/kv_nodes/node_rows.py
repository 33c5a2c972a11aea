"""One node manager in the form of the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec

from controlplane.kv_nodes.models.kv_node import LIVE, KvNode, KvNodeState
from kvstore.node.node_report import NodeReport, TierReport
from routing.values.prepared_struct import prepared

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
