"""Pinned prefixes in the form of the page: by key, never by content."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from controlplane.kv_nodes.unpinning import pin_of
from kvstore.node.node_report import PinReport
from web.kv_nodes.node_rows import NodeRow
from web.shell.console_request import with_query

SHOWN = 20


@dataclass(frozen=True, slots=True)
class PinRow:
    """One pin on one node."""

    node: NodeRow
    pin: PinReport
    left_s: float

    @property
    def ending(self) -> bool:
        """Whether an operator has ended the pin but the node has not received that yet."""
        return (self.pin.name, self.pin.tenant) in map(pin_of, self.node.unpin)

    @property
    def address(self) -> str:
        """URL of the dialog that ends the pin."""
        return with_query("/kv", unpin=self.pin.name, node=self.node.name, tenant=self.pin.tenant)


def pin_rows(nodes: Sequence[NodeRow], now: datetime) -> list[PinRow]:
    """Return the pins of the reporting nodes, the largest first."""
    pins = [PinRow(node, pin, pin.left_s - node.age_s(now)) for node in nodes if node.live for pin in node.report.pins]
    return sorted(pins, key=lambda item: (-item.pin.bytes, item.node.name, item.pin.tenant, item.pin.name))


def left_out(nodes: Sequence[NodeRow]) -> int:
    """Return the number of unlisted pins: beyond SHOWN, or omitted from the nodes' reports."""
    live = [node.report for node in nodes if node.live]
    return max(0, sum(len(item.pins) for item in live) - SHOWN) + sum(item.more_pins for item in live)
