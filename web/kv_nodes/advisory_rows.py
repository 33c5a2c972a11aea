"""Advisories in the form of the page: their actual or possible effect per pool, and their outcomes per source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controlplane.kv_nodes.advisory_tallies import AdvisoryTotals, verdict
from gateway.contracts.advisory import PoolTally, SourceTally

SHOWN = 12
_JUDGED = ("useful", "late", "overruled", "spurious")
_NO_POOL = "sessions not known"


def advisory_table(totals: AdvisoryTotals, pools: Mapping[str, str], keys: Mapping[str, str]) -> dict[str, Any]:
    """Return the table of these totals; `pools` and `keys` map ids to names."""
    sources = totals.sources
    return {
        "pools": [_pool(pool, pools[pool.pool_id]) for pool in totals.pools if pool.pool_id in pools],
        "sources": [_source(source, pools, keys) for source in sources[:SHOWN]],
        "more": max(0, len(sources) - SHOWN),
    }


def _pool(tally: PoolTally, name: str) -> dict[str, Any]:
    pays, why = verdict(tally)
    return {"name": name, "tally": tally, "pays": pays, "finding": why}


def _source(tally: SourceTally, pools: Mapping[str, str], keys: Mapping[str, str]) -> dict[str, Any]:
    shed = tally.outcomes.get("shed", 0)
    return {
        "name": keys.get(tally.source, tally.source),
        "tally": tally,
        "pool": pools.get(tally.pool_id, tally.pool_id) or _NO_POOL,
        "received": tally.received + shed if tally.pool_id else sum(tally.outcomes.values()),
        "judged": sum(tally.outcomes.get(name, 0) for name in _JUDGED),
        "shed": shed,
        **{name: tally.outcomes.get(name, 0) for name in _JUDGED},
    }
