"""The prefixes that most prompts share, and where copies of them lie (Mooncake Fig. 18). Hashes only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from controlplane.fleet.models.pool import Pool
from controlplane.history.affinity.intake import affinity_hearing
from controlplane.platform.format import rate, short
from gateway.contracts.affinity_sample import PoolAffinity, SharedPrefix

SHOWN = 10
_DIGITS = 8


@dataclass(frozen=True, slots=True)
class HolderCell:
    """One node: where it has the prefix."""

    node: str
    tier: str
    """dram, ssd, or empty: nowhere."""
    words: str


@dataclass(frozen=True, slots=True)
class PrefixRow:
    """One prefix."""

    hash: str
    pool: str
    tokens: str
    requests: str
    engines: int
    """That hold it in their own memory."""
    cells: tuple[HolderCell, ...]
    copies: int
    """On nodes, whatever the tier."""


def prefix_rows(pools: Iterable[Pool], nodes: Sequence[str], now: float) -> tuple[PrefixRow, ...]:
    """Return the most frequent prefixes of these pools by what gateways said last; `now` is unix seconds."""
    found: list[tuple[float, Pool, SharedPrefix]] = []
    for pool in pools:
        word = affinity_hearing().of(pool.slug, now)
        if word is not None:
            found += [(_per_s(word.pool, each), pool, each) for each in word.pool.prefixes]
    found.sort(key=lambda each: (-each[0], each[2].key))
    return tuple(_row(*each, nodes) for each in found[:SHOWN])


def _per_s(pool: PoolAffinity, prefix: SharedPrefix) -> float:
    return prefix.requests / pool.span_s if pool.span_s > 0 else 0.0


def _row(per_s: float, pool: Pool, prefix: SharedPrefix, nodes: Sequence[str]) -> PrefixRow:
    cells = tuple(_cell(node, prefix) for node in nodes)
    return PrefixRow(
        hash=prefix.key[:_DIGITS],
        pool=pool.name,
        tokens=short(prefix.last_block * pool.block_tokens),
        requests=rate(per_s),
        engines=len(prefix.holders),
        cells=cells,
        copies=sum(bool(each.tier) for each in cells),
    )


def _cell(node: str, prefix: SharedPrefix) -> HolderCell:
    if node in prefix.dram_nodes:
        return HolderCell(node, "dram", f"{node}: in DRAM")
    if node in prefix.ssd_nodes:
        return HolderCell(node, "ssd", f"{node}: on SSD")
    return HolderCell(node, "", f"{node}: no copy")
