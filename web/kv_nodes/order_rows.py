"""Orders that moved KV blocks, and what each was worth, as the page shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, Q, QuerySet, Sum

from controlplane.kv_nodes.models.kv_order import KvOrder
from controlplane.platform.format import UNKNOWN, Moment, byte_size, count, duration, moment_of, percent, short

SHOWN = 12
PLANNERS = {"prefetch": "Prefetch", "advisory": "Advisory", "replicate": "Replication", "shrink": "Cold copies"}
_WHY = {
    "prefetch": "a request waited for its engine",
    "advisory": "a session announced its request",
    "replicate": "loaded from elsewhere again and again",
    "shrink": "a replica that nobody loads from",
}
_OUTCOMES = {
    "moved": "Moved",
    "missing": "Missing",
    "failed": "Failed",
    "late": "Late",
    "freed": "Freed",
    "kept": "Kept",
}


@dataclass(frozen=True, slots=True)
class OrderRow:
    """One order."""

    planner: str
    why: str
    source: str
    target: str
    keeper: str
    """Node that keeps the blocks which the target gives up; empty: the order moves blocks."""
    asked: Moment
    outcome: str
    failed: bool
    moved: str
    size: str
    took: str
    worth: str
    loads: str


@dataclass(frozen=True, slots=True)
class PlannerRow:
    """What all stored orders of one planner came to."""

    name: str
    frees: bool
    orders: str
    moved: str
    useful: str
    useless: int
    saved: str


@dataclass(frozen=True, slots=True)
class OrderTable:
    """The newest orders, and a line for each planner that asked for any."""

    planners: tuple[PlannerRow, ...]
    rows: tuple[OrderRow, ...]
    more: int


def order_table(orders: QuerySet[KvOrder], now: datetime) -> OrderTable:
    """Return the table of these orders."""
    totals = orders.order_by("planner").values("planner").annotate(
        asked=Count("pk"),
        size=Sum("bytes"),
        saved=Sum("saved_tokens"),
        useful=Count("pk", filter=Q(worth="useful")),
        useless=Count("pk", filter=Q(worth="useless")),
    )  # fmt: skip
    planners = tuple(_planner(each) for each in totals)
    rows = tuple(_row(each, now) for each in orders.order_by("-asked_at", "-pk")[:SHOWN])
    return OrderTable(planners, rows, max(0, sum(each["asked"] for each in totals) - len(rows)))


def _planner(total: Mapping[str, Any]) -> PlannerRow:
    name = total["planner"]
    judged = total["useful"] + total["useless"]
    return PlannerRow(
        name=PLANNERS.get(name, name),
        frees=name == "shrink",
        orders=count(total["asked"], "order"),
        moved=byte_size(total["size"] or 0),
        useful=percent(total["useful"] / judged if judged else None),
        useless=total["useless"],
        saved=_tokens(total["saved"] or 0),
    )


def _row(order: KvOrder, now: datetime) -> OrderRow:
    return OrderRow(
        planner=PLANNERS.get(order.planner, order.planner),
        why=_WHY.get(order.planner, ""),
        source=f"SSD of {order.source}" if order.source == order.target else order.source,
        target=order.target,
        keeper=order.source if order.planner == "shrink" else "",
        asked=moment_of(order.asked_at, now),
        outcome=_OUTCOMES.get(order.outcome, order.outcome),
        failed=order.outcome in ("missing", "failed"),
        moved=f"{order.blocks} of {count(order.asked_blocks, 'block')}",
        size=byte_size(order.bytes),
        took=duration(order.seconds),
        worth=_worth(order),
        loads=count(order.loads, "load") if order.loads else "",
    )


def _tokens(number: int) -> str:
    return f"{short(number)} {'token' if number == 1 else 'tokens'}"


def _worth(order: KvOrder) -> str:
    if order.planner == "shrink":
        return {"useful": "Not missed", "useless": "Missed: asked for again", "open": "Not missed yet"}.get(
            order.worth, UNKNOWN
        )
    if order.worth == "useful":
        return f"{_tokens(order.saved_tokens)} saved"
    return {"useless": "Useless", "open": "Not loaded yet"}.get(order.worth, UNKNOWN)
