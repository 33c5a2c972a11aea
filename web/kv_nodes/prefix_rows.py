"""The prefixes that most prompts share, and where their copies are (Mooncake Fig. 18). Hashes only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from controlplane.fleet.models.pool import Pool
from controlplane.history.cache_locality.intake import cache_locality_intake
from gateway.contracts.cache_locality_sample import SharedPrefix

SHOWN = 10
_TIERS = {"dram": "in DRAM", "ssd": "on SSD", "": "no copy"}


@dataclass(frozen=True, slots=True)
class PrefixRow:
    """One prefix, and per node the tier that holds it: dram, ssd, or empty."""

    pool: Pool
    prefix: SharedPrefix
    per_s: float
    tiers: dict[str, str]

    @property
    def tokens(self) -> int:
        """Number of tokens that the prompts share."""
        return self.prefix.last_block * self.pool.block_tokens

    @property
    def copies(self) -> int:
        """Number of copies on nodes, in any tier."""
        return sum(map(bool, self.tiers.values()))

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
            prefixes.append(PrefixRow(pool, prefix, per_s, {node: _tier(prefix, node) for node in nodes}))
    return sorted(prefixes, key=lambda item: (-item.per_s, item.prefix.key))[:SHOWN]


def _tier(prefix: SharedPrefix, node: str) -> str:
    return "dram" if node in prefix.dram_nodes else "ssd" if node in prefix.ssd_nodes else ""
