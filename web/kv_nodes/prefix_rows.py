"""The prefixes that most prompts share, where their copies are (Mooncake Fig. 18), and the pins. Hashes only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from controlplane.fleet.models.pool import Pool
from controlplane.history.cache_locality.intake import cache_locality_intake
from controlplane.kv_nodes.unpinning import pin_of
from gateway.contracts.cache_locality_sample import SharedPrefix
from kvstore.node.node_report import PinReport
from web.kv_nodes.node_rows import NodeRow
from web.shell.console_request import with_query

SHOWN_PINS = 20


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
        return with_query("/cache/store", unpin=self.pin.name, node=self.node.name, tenant=self.pin.tenant)


def pin_rows(nodes: Sequence[NodeRow], now: datetime) -> list[PinRow]:
    """Return the pins of the reporting nodes, the largest first."""
    pins = [PinRow(node, pin, pin.left_s - node.age_s(now)) for node in nodes if node.live for pin in node.report.pins]
    return sorted(pins, key=lambda item: (-item.pin.bytes, item.node.name, item.pin.tenant, item.pin.name))


def left_out(nodes: Sequence[NodeRow]) -> int:
    """Return the number of unlisted pins: beyond SHOWN_PINS, or omitted from the nodes' reports."""
    live = [node.report for node in nodes if node.live]
    return max(0, sum(len(item.pins) for item in live) - SHOWN_PINS) + sum(item.more_pins for item in live)


SHOWN = 10
_TIERS = {"dram": "in DRAM", "ssd": "on SSD", "": "no copy"}


@dataclass(frozen=True, slots=True)
class PrefixRow:
    """One prefix, and per node the tier that holds it: dram, ssd, or empty."""

    pool: Pool
    prefix: SharedPrefix
    per_s: float
    tiers: dict[str, str]
    series: tuple[int | None, ...] = ()
    """Copies in each minute of the last hour; None: not reported."""

    @property
    def bars(self) -> list[tuple[int, float]]:
        """Return (minute from the left, height in percent of the most copies) of each minute with a copy."""
        most = max(filter(None, self.series), default=1)
        return [(minute, 100 * copies / most) for minute, copies in enumerate(self.series) if copies]

    @property
    def course(self) -> str:
        """The series in words."""
        known = [copies for copies in self.series if copies is not None]
        return f"{min(known)} to {max(known)} copies in the last hour" if known else "no series yet"

    @property
    def tokens(self) -> int:
        """Number of tokens that the prompts share."""
        return self.prefix.last_block * self.pool.block_tokens

    @property
    def copies(self) -> int:
        """Number of copies on nodes, in any tier."""
        return sum(map(bool, self.tiers.values()))

    @property
    def address(self) -> str:
        """URL of the dialog that changes the number of copies."""
        return with_query("/cache/store", pool=self.pool.slug, copies=self.prefix.key)

    @property
    def cells(self) -> list[tuple[str, str]]:
        """Tier and words for each node."""
        return [(tier, f"{node}: {_TIERS[tier]}") for node, tier in self.tiers.items()]


def prefix_rows(pools: Iterable[Pool], nodes: Sequence[str], now: float) -> list[PrefixRow]:
    """Return the most frequent prefixes of these pools from the gateways' last reports; `now` is in Unix seconds."""
    prefixes = []
    for pool in pools:
        word = cache_locality_intake().of(pool.slug, now)
        for prefix in word.pool.prefixes if word is not None else ():
            per_s = prefix.requests / word.pool.span_s if word.pool.span_s > 0 else 0.0
            series = cache_locality_intake().copies(pool.slug, prefix.key, now)
            prefixes.append(PrefixRow(pool, prefix, per_s, {node: _tier(prefix, node) for node in nodes}, series))
    return sorted(prefixes, key=lambda item: (-item.per_s, item.prefix.key))[:SHOWN]


def _tier(prefix: SharedPrefix, node: str) -> str:
    return "dram" if node in prefix.dram_nodes else "ssd" if node in prefix.ssd_nodes else ""
