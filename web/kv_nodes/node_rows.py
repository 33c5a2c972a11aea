"""One node manager as the page shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import msgspec

from controlplane.kv_nodes.models.kv_node import LIVE, KvNode, KvNodeState
from controlplane.platform.format import Moment, byte_size, moment, short, whole
from kvstore.node.node_report import NodeReport, TierReport
from routing.values.prepared_struct import prepared

SHAPES = {
    KvNodeState.SERVING: "serving",
    KvNodeState.DRAINING: "draining",
    KvNodeState.GONE: "removed",
    KvNodeState.SILENT: "lost",
}
_MEDIA = (("CPU", "DRAM"), ("STORAGE", "SSD"))


@dataclass(frozen=True, slots=True)
class TierCell:
    """One tier of one node."""

    name: str
    used: str = ""
    size: str = ""
    percent: int = 0
    hits: str = ""
    evicted: str = ""
    corrupt: int = 0
    withheld: str = ""
    """What the disk has no space for, in bytes; empty: it has all."""

    @property
    def there(self) -> bool:
        """Whether the node has the tier."""
        return bool(self.size)


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One node; counters are since it started."""

    name: str
    address: str
    state: str
    word: str
    shape: str
    heard: Moment | None
    tiers: tuple[TierCell, ...]
    report: NodeReport
    blocks: str
    misses: str
    slot_bytes: int
    heard_at: datetime | None = None
    unpin: tuple[Mapping[str, str], ...] = ()
    """Pins that operators have ended."""

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


def disk_is_full(row: NodeRow) -> bool:
    """Return whether a node's disk has no space for all of its tier."""
    return any(tier.withheld for tier in row.tiers)


def node_row(node: KvNode, now: datetime) -> NodeRow:
    """Return a node's row; one that never reported, or in a form that this program does not read, has no counts."""
    told = getattr(node, "report", None)
    report = _report(told.content) if told is not None else NodeReport()
    return NodeRow(
        name=node.name,
        address=node.address,
        state=node.state,
        word=KvNodeState(node.state).label,
        shape=SHAPES[KvNodeState(node.state)],
        heard=moment(told.heard_at if told is not None else None, now),
        tiers=tuple(_cell(name, medium, report, node.slot_bytes) for medium, name in _MEDIA),
        report=report,
        blocks=whole(report.blocks),
        misses=short(report.misses),
        slot_bytes=node.slot_bytes,
        heard_at=told.heard_at if told is not None else None,
        unpin=tuple(told.unpin) if told is not None else (),
    )


def _report(content: object) -> NodeReport:
    try:
        return msgspec.convert(content, prepared(NodeReport))
    except msgspec.ValidationError:
        return NodeReport()


def _cell(name: str, medium: str, report: NodeReport, slot_bytes: int) -> TierCell:
    tier = next((each for each in report.tiers if each.medium == medium), TierReport(medium=medium))
    if not tier.slots:
        return TierCell(name)
    return TierCell(
        name=name,
        used=byte_size(tier.used_slots * slot_bytes),
        size=byte_size((tier.slots - tier.withheld_slots) * slot_bytes),
        percent=round(100 * tier.used_slots / max(1, tier.slots - tier.withheld_slots)),
        hits=short(tier.hits),
        evicted=short(tier.evicted),
        corrupt=tier.corrupt,
        withheld=byte_size(tier.withheld_slots * slot_bytes) if tier.withheld_slots else "",
    )
