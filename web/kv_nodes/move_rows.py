"""Orders that moved KV blocks, and what each one gained, in the form of the page."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db.models import Count, F, Q, QuerySet, Sum

from controlplane.kv_nodes.models.kv_move import KvMoveRecord
from controlplane.platform.format import UNKNOWN, moment, short

SHOWN = 12
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
