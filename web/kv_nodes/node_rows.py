"""One node manager in the form of the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import msgspec

from controlplane.kv_nodes.models.kv_node import EVICTION_CHOICES, LIVE, SSD_CHOICES, KvNode, KvNodeState
from controlplane.platform.format import NARROW_SPACE, UNKNOWN, byte_rate, count, rate, some_names
from kvstore.node.node_report import LinkReport, NodeReport, TierReport
from planning.kv_moves.compression_advice import CompressionAdvice, compression_advice
from routing.values.prepared_struct import prepared


def finding(rows: Sequence[NodeRow]) -> dict[str, Any]:
    """Return one sentence about these nodes, its shape, and the totals of all serving nodes."""
    text, shape = _sentence(rows)
    live = [row for row in rows if row.live]
    hits, misses = (_total(row.reads_per_s[kind] for row in live) for kind in (0, 1))
    return {
        "text": text,
        "shape": shape,
        "blocks": sum(row.report.blocks for row in live),
        "used": sum(tier.used_slots * row.slot_bytes for row in live for tier in row.report.tiers),
        "size": sum(slots * row.slot_bytes for row in live for _, _, slots, *_ in row.tiers),
        "full": any(row.is_full for row in live),
        "hits": hits,
        "asked": None if hits is None or misses is None else hits + misses,
        "ever_hit": sum(tier.hits for row in live for tier in row.report.tiers),
        "ever_missed": sum(row.report.misses for row in live),
        "sent_words": rate_words(_total(row.sent_per_s(link) for row in live for link in row.report.links)),
        "leaving": _total(row.leaving_per_s for row in live),
        "corrupt": sum(row.corrupt for row in live),
    }


def rate_words(per_s: float | None) -> str:
    """Return bytes per second in words: a dash if unknown."""
    return UNKNOWN if per_s is None else byte_rate(per_s) or f"0{NARROW_SPACE}B/s"


def _total(rates: Iterable[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None


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
    full, leaving = [row.name for row in rows if row.live and row.is_full], _total(row.leaving_per_s for row in rows)
    words = f"{serving} of {count(len(rows), 'KV node')} serving"
    if full:
        words += f"; all tiers of {some_names(full, 3)} are full"
        words += f", {rate(leaving)} blocks/s leave the store" if leaving else ""
    return f"{words}.", "degraded" if full else "serving"


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
    before: NodeReport = _UNTOLD
    """Counters of about ten seconds before the report."""
    over_s: float = 0.0
    """Seconds between them and the report, 0 if there are none."""
    unpin: tuple[Mapping[str, str], ...] = ()
    """Pins that an operator has ended."""
    eviction: str = ""
    """The rule that operators chose, and the SSD policy; empty: the node's own."""
    ssd_policy: str = ""

    @property
    def rules(self) -> list[tuple[str, str, str]]:
        """Return (title, words of the rule in force, "" or "chosen" or "applies soon") for each rule it reports."""
        rules = (
            ("Evicts", dict(EVICTION_CHOICES), self.report.eviction, self.eviction),
            ("To SSD", dict(SSD_CHOICES), self.report.ssd_policy, self.ssd_policy),
        )
        return [
            (title, titles.get(runs, runs), "" if not chosen else "chosen" if chosen == runs else "applies soon")
            for title, titles, runs, chosen in rules
            if runs
        ]

    @property
    def shape(self) -> str:
        """The shape before the state word."""
        return SHAPES[self.state]

    @property
    def live(self) -> bool:
        """Whether the node reports. A reporting node would reappear at once after being deleted."""
        return self.state in LIVE

    @property
    def reads_per_s(self) -> tuple[float | None, float | None]:
        """Blocks read from either tier per second, and blocks that neither tier held."""
        hits, before = (sum(tier.hits for tier in item.tiers) for item in (self.report, self.before))
        return self.per_s(hits, before), self.per_s(self.report.misses, self.before.misses)

    @property
    def leaving_per_s(self) -> float | None:
        """Blocks per second that the node evicts from its last tier."""
        evicted = [rate for _, tier, *_, rate in self.tiers if tier is not None]
        return evicted[-1] if evicted else None

    @property
    def is_full(self) -> bool:
        """Whether all tiers are full."""
        shares = [percent for _, tier, _, percent, *_ in self.tiers if tier is not None]
        return bool(shares) and min(shares) >= 100

    def per_s(self, count: int, before: int) -> float | None:
        """Return a counter's rate per second; None if it is unknown."""
        return (count - before) / self.over_s if self.over_s > 0 and count >= before else None

    def sent_per_s(self, link: LinkReport) -> float | None:
        """Return the bytes per second that the node sends over this link."""
        before = next((item.sent_bytes for item in self.before.links if item.peer == link.peer), 0)
        return self.per_s(link.sent_bytes, before)

    @property
    def corrupt(self) -> int:
        """Number of copies whose checksum did not match."""
        return sum(tier.corrupt for tier in self.report.tiers)

    @property
    def disk_is_full(self) -> bool:
        """Whether a disk lacks space for its full tier."""
        return any(tier.withheld_slots for tier in self.report.tiers)

    @property
    def tiers(self) -> list[tuple[str, TierReport | None, int, int, float | None, float | None]]:
        """Name, counts (None without such a tier), allocated slots, percent in use, reads and evictions per second."""
        reports = {tier.medium: tier for tier in reversed(self.report.tiers) if tier.slots}
        sizes = {medium: tier.slots - tier.withheld_slots for medium, tier in reports.items()}
        before = {tier.medium: tier for tier in self.before.tiers}
        rows: list[tuple[str, TierReport | None, int, int, float | None, float | None]] = []
        for medium, name in _MEDIA:
            tier, old = reports.get(medium), before.get(medium, TierReport(medium=medium))
            if tier is None:
                rows.append((name, None, 0, 0, None, None))
                continue
            share = round(100 * tier.used_slots / max(1, sizes[medium]))
            rates = self.per_s(tier.hits, old.hits), self.per_s(tier.evicted, old.evicted)
            rows.append((name, tier, sizes[medium], share, *rates))
        return rows

    def age_s(self, now: datetime) -> float:
        """Return the age of the node's report in seconds."""
        return (now - self.reported_at).total_seconds() if self.reported_at is not None else 0.0


def node_row(node: KvNode) -> NodeRow:
    """Return a node's row; without counts if the node never reported, or in a format that this program cannot read."""
    row = NodeRow(
        node.name,
        node.address,
        KvNodeState(node.state),
        node.slot_bytes,
        eviction=node.eviction,
        ssd_policy=node.ssd_policy,
    )
    report = getattr(node, "report", None)
    return (
        row
        if report is None
        else replace(
            row,
            report=_report(report.content),
            reported_at=report.received_at,
            unpin=report.unpin,
            **_since(report.earlier, report.received_at.timestamp()),
        )
    )


def _since(earlier: Sequence[Mapping[str, Any]], at: float) -> dict[str, Any]:
    if not earlier:
        return {}
    return {"before": _report(earlier[0]["counters"]), "over_s": max(0.0, at - earlier[0]["at"])}


def _report(content: object) -> NodeReport:
    try:
        return msgspec.convert(content, prepared(NodeReport))
    except msgspec.ValidationError:
        return _UNTOLD
