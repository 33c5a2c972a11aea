"""Moves of KV blocks and advisories in the form of the page: what each one gained."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db.models import Count, F, Q, QuerySet, Sum

from controlplane.kv_nodes.advisory_tallies import AdvisoryTotals, verdict
from controlplane.kv_nodes.models.kv_move import KvMoveRecord
from controlplane.platform.format import UNKNOWN, count, moment, short
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


PLANNERS = {
    "prefetch": ("Prefetch", "a request waited for its engine"),
    "advisory": ("Advisory", "a session announced its request"),
    "replicate": ("Replication", "repeatedly loaded from another node"),
    "shrink": ("Cold copies", "a replica that no engine loads from"),
}
"""Display name of each planner, and the reason for its orders."""
_OUTCOMES = {
    "moved": "Moved",
    "missing": "Missing",
    "failed": "Failed",
    "late": "Late",
    "freed": "Freed",
    "kept": "Kept",
}
_WORTH = {"useless": "Useless", "open": "Not loaded yet"}
_WORTH_OF_SPACE = {"useful": "Not needed again", "useless": "Needed again", "open": "Not needed so far"}


def order_table(orders: QuerySet[KvMoveRecord], now: datetime) -> dict[str, Any]:
    """Return the newest of these orders, and one line per planner that sent orders."""
    totals = list(
        orders.order_by("planner").values("planner").annotate(
            asked=Count("pk"),
            size=Sum("bytes"),
            saved=Sum("saved_tokens"),
            useful=Count("pk", filter=Q(worth="useful")),
            useless=Count("pk", filter=Q(worth="useless")),
            judged=F("useful") + F("useless"),
        )
    )  # fmt: skip
    rows = [_row(order, now) for order in orders.order_by("-asked_at", "-pk")[:SHOWN]]
    return {
        "planners": [
            {**total, "name": _planner(total["planner"])[0], "saved": token_words(total["saved"])} for total in totals
        ],
        "rows": rows,
        "more": max(0, sum(total["asked"] for total in totals) - len(rows)),
    }


def moves_finding(orders: Mapping[str, Any], advisories: Mapping[str, Any]) -> str:
    """Return the page's title: how many moves and advisories there were, and how many of the moves were useful."""
    planners = orders["planners"]
    if not planners:
        moved = "No moves yet"
    else:
        asked, judged, useful = (sum(planner[name] for planner in planners) for name in ("asked", "judged", "useful"))
        moved = count(asked, "move") + (
            f", {useful} of {judged} evaluated useful" if judged else ", none evaluated yet"
        )
    received = sum(source["received"] for source in advisories["sources"])
    return f"{moved}; {count(received, 'advisory', 'advisories') if received else 'no advisories'}"


def _row(order: KvMoveRecord, now: datetime) -> dict[str, Any]:
    planner, why = _planner(order.planner)
    return {
        "order": order,
        "planner": planner,
        "why": why,
        "asked": moment(order.asked_at, now),
        "outcome": _OUTCOMES.get(order.outcome, order.outcome),
        "failed": order.outcome in ("missing", "failed"),
        "worth": _worth(order),
    }


def _planner(name: str) -> tuple[str, str]:
    return PLANNERS.get(name, (name, ""))


def token_words(number: int) -> str:
    """Return a token count in short form: 1 token, 4.1k tokens."""
    return f"{short(number)} {'token' if number == 1 else 'tokens'}"


def _worth(order: KvMoveRecord) -> str:
    if order.planner == "shrink":
        return _WORTH_OF_SPACE.get(order.worth, UNKNOWN)
    return f"{token_words(order.saved_tokens)} saved" if order.worth == "useful" else _WORTH.get(order.worth, UNKNOWN)
