"""One node manager as the page shows it."""

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
    """One node; counters are since it started."""

    name: str
    address: str
    state: KvNodeState
    slot_bytes: int
    report: NodeReport = _UNTOLD
    reported_at: datetime | None = None
    unpin: tuple[Mapping[str, str], ...] = ()
    """Pins that operators have ended."""

    @property
    def shape(self) -> str:
        """The shape before the word of its state."""
        return SHAPES[self.state]

    @property
    def live(self) -> bool:
        """Whether it reports, so that it would be back at once if it were deleted."""
        return self.state in LIVE

    @property
    def hits(self) -> int:
        """Blocks read from either tier."""
        return sum(tier.hits for tier in self.report.tiers)

    @property
    def corrupt(self) -> int:
        """Copies whose checksum disagreed."""
        return sum(tier.corrupt for tier in self.report.tiers)

    @property
    def disk_is_full(self) -> bool:
        """Whether a disk lacks space for all of its tier."""
        return any(tier.withheld_slots for tier in self.report.tiers)

    @property
    def tiers(self) -> list[tuple[str, TierReport | None, int, int]]:
        """Name, counts (None: no such tier), slots with space, and percent of them in use."""
        reports = {tier.medium: tier for tier in reversed(self.report.tiers) if tier.slots}
        sizes = {medium: tier.slots - tier.withheld_slots for medium, tier in reports.items()}
        return [
            (name, reports[medium], sizes[medium], round(100 * reports[medium].used_slots / max(1, sizes[medium])))
            if medium in reports
            else (name, None, 0, 0)
            for medium, name in _MEDIA
        ]

    def age_s(self, now: datetime) -> float:
        """Return the age of its report in seconds."""
        return (now - self.reported_at).total_seconds() if self.reported_at is not None else 0.0


def node_row(node: KvNode) -> NodeRow:
    """Return a node's row; without counts where it never reported, or in a format that this program cannot read."""
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
