"""Advisories as the page shows them: per pool what they brought or would bring, per source what became of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controlplane.kv_nodes.advisory_tallies import Advised, verdict
from controlplane.platform.format import UNKNOWN, byte_size, duration, percent, short
from gateway.contracts.advisory import PoolTally, SourceTally

SHOWN = 12
_JUDGED = ("useful", "late", "overruled", "spurious")
_NO_POOL = "sessions not known"


@dataclass(frozen=True, slots=True)
class PoolRow:
    """One pool."""

    name: str
    rule: str
    finding: str
    pays: bool | None
    with_ttft: str
    without_ttft: str
    requests: str


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One API key's advisories in one pool."""

    name: str
    tenant: str
    pool: str
    received: str
    useful: str
    useful_share: str
    """Of those that are judged; empty: none is yet."""
    late: str
    overruled: str
    spurious: str
    shed: str
    moved: str
    useless: str
    """Of what moved; empty: nothing was."""
    saved: str
    backs_off: bool


@dataclass(frozen=True, slots=True)
class AdvisoryTable:
    """All of it."""

    pools: tuple[PoolRow, ...]
    sources: tuple[SourceRow, ...]
    more: int


def advisory_table(told: Advised, pools: Mapping[str, str], keys: Mapping[str, str]) -> AdvisoryTable:
    """Return the table of these counts; `pools` and `keys` have the names of ids."""
    sources = told.sources
    return AdvisoryTable(
        tuple(_pool(each, pools) for each in told.pools if each.pool_id in pools),
        tuple(_source(each, pools, keys) for each in sources[:SHOWN]),
        max(0, len(sources) - SHOWN),
    )


def _pool(tally: PoolTally, names: Mapping[str, str]) -> PoolRow:
    pays, why = verdict(tally)
    return PoolRow(
        name=names[tally.pool_id],
        rule=tally.rule,
        finding=why,
        pays=pays,
        with_ttft=duration(tally.advised_ttft_s / tally.advised) if tally.advised else UNKNOWN,
        without_ttft=duration(tally.others_ttft_s / tally.others) if tally.others else UNKNOWN,
        requests=f"{short(tally.advised)} / {short(tally.others)}",
    )


def _source(tally: SourceTally, pools: Mapping[str, str], keys: Mapping[str, str]) -> SourceRow:
    shed, judged = tally.outcomes.get("shed", 0), sum(tally.outcomes.get(name, 0) for name in _JUDGED)
    return SourceRow(
        name=keys.get(tally.source, tally.source),
        tenant=tally.tenant_id,
        pool=pools.get(tally.pool_id, tally.pool_id) or _NO_POOL,
        received=short(tally.received + shed if tally.pool_id else sum(tally.outcomes.values())),
        useful=short(tally.outcomes.get("useful", 0)),
        useful_share=percent(tally.outcomes.get("useful", 0) / judged) if judged else "",
        late=short(tally.outcomes.get("late", 0)),
        overruled=short(tally.outcomes.get("overruled", 0)),
        spurious=short(tally.outcomes.get("spurious", 0)),
        shed=short(shed),
        moved=byte_size(tally.bytes_moved),
        useless=byte_size(tally.bytes_useless) if tally.bytes_useless else "",
        saved=short(tally.saved_tokens),
        backs_off=tally.backs_off,
    )
