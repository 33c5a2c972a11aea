"""Pinned prefixes as the page shows them: by key, never by content."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from controlplane.kv_nodes.unpinning import pin_of
from controlplane.platform.format import UNKNOWN, byte_size, percent, short, span
from kvstore.node.node_report import PinReport
from web.kv_nodes.node_rows import NodeRow
from web.shell.console_request import with_query

SHOWN = 20
_DIGITS = 8


@dataclass(frozen=True, slots=True)
class PinRow:
    """One pin on one node."""

    node: str
    name: str
    hash: str
    tenant: str
    tokens: str
    size: str
    left: str
    quota: str
    """Share of what the tenant may pin on the node that is taken."""
    pinned: str
    """What the tenant has pinned there, of how much."""
    ending: bool
    """An operator has ended it, and the node has not heard of it yet."""
    told_tenant: str
    """As the node has it."""

    @property
    def address(self) -> str:
        """Where its end is confirmed."""
        return with_query("/kv", unpin=self.name, node=self.node, tenant=self.told_tenant)


@dataclass(frozen=True, slots=True)
class PinTable:
    """The largest pins of all nodes."""

    rows: tuple[PinRow, ...]
    more: int


def pin_table(nodes: Sequence[NodeRow], now: datetime) -> PinTable:
    """Return the pins of the nodes that report, the largest first."""
    found = [(node, pin) for node in nodes if node.live for pin in node.report.pins]
    found.sort(key=lambda each: (-each[1].bytes, each[0].name, each[1].tenant, each[1].name))
    all_of_them = len(found) + sum(node.report.more_pins for node in nodes if node.live)
    rows = tuple(_row(node, pin, now) for node, pin in found[:SHOWN])
    return PinTable(rows, all_of_them - len(rows))


def pin_row(nodes: Sequence[NodeRow], node: str, name: str, tenant: str, now: datetime) -> PinRow | None:
    """Return one pin; None where its node has not reported it."""
    return next(
        (
            _row(row, pin, now)
            for row in nodes
            if row.name == node and row.live
            for pin in row.report.pins
            if (pin.name, pin.tenant) == (name, tenant)
        ),
        None,
    )


def _row(node: NodeRow, pin: PinReport, now: datetime) -> PinRow:
    quota = node.report.pin_quota_bytes
    age_s = (now - node.heard_at).total_seconds() if node.heard_at is not None else 0.0
    return PinRow(
        node=node.name,
        name=pin.name,
        hash=pin.name[:_DIGITS],
        tenant=pin.tenant or UNKNOWN,
        tokens=short(pin.tokens),
        size=byte_size(pin.bytes),
        left=span(pin.left_s - age_s),
        quota=percent(pin.tenant_bytes / quota if quota else None),
        pinned=f"{byte_size(pin.tenant_bytes)} of {byte_size(quota)}",
        ending=(pin.name, pin.tenant) in map(pin_of, node.unpin),
        told_tenant=pin.tenant,
    )
