"""Sums of the ledger by tenant, key, model, pool, or day, and what engines cost and cache hits saved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import msgspec
from django.db.models import QuerySet, Sum

from controlplane.fleet.models.learned_cost import LearnedCost
from controlplane.fleet.visibility import visible_pools
from controlplane.platform.actor import Actor
from controlplane.platform.models.api_key import ApiKey
from controlplane.platform.role import Role
from controlplane.platform.roles import may
from controlplane.usage.models.budget import Budget, BudgetUnit
from controlplane.usage.models.usage_rows import EngineDay, UsageDay
from gateway.usage.usage_messages import NANO, window_end, window_start
from routing.cost.cost_fit import FittedCost
from routing.values.prepared_struct import prepared

COUNTS = (
    "requests", "late", "failed", "rejected", "over_budget", "would_reject", "interrupted", "client_ended",
    "unreported", "prompt_tokens", "cached_tokens", "output_tokens",
)  # fmt: skip
GROUPS = {"tenant": "tenant", "key": "key_id", "model": "model", "pool": "pool", "day": "day"}
"""Name of a grouping → column."""
NAMED = ("tenant", "key", "model", "pool")


@dataclass(frozen=True, slots=True)
class UsageQuery:
    """Which part of the ledger: UTC days from `since` to `until`, both inclusive, and exact names by NAMED."""

    since: date
    until: date
    names: Mapping[str, str]

    @property
    def days(self) -> int:
        """Return the number of days."""
        return (self.until - self.since).days + 1

    def rows(self, actor: Actor) -> QuerySet[UsageDay]:
        """Return the rows that the actor may see: those of its pools, or all with a role everywhere."""
        named = {GROUPS[name]: text for name, text in self.names.items() if text}
        rows = UsageDay.objects.filter(day__gte=self.since, day__lte=self.until, **named)
        return rows if may(actor, Role.VIEWER) else rows.filter(pool__in=_slugs(actor))


def _slugs(actor: Actor) -> list[str]:
    return list(visible_pools(actor).values_list("slug", flat=True))


def month_query(month: str, names: Mapping[str, str]) -> UsageQuery:
    """Return the query of a month such as 2026-11. Raises ValueError for other texts."""
    first = datetime.strptime(month, "%Y-%m").replace(tzinfo=UTC).date()
    return UsageQuery(first, (first + timedelta(days=32)).replace(day=1) - timedelta(days=1), names)


def sums(rows: QuerySet[UsageDay], *groups: str) -> list[dict[str, Any]]:
    """Return the sums of each group, those with the most tokens first; one without a group.

    A sum has the names of its group, COUNTS, and `dollars` by the price list.
    """
    totals = {name: Sum(name) for name in (*COUNTS, "charge")}
    if not groups:
        lines: Iterable[dict[str, Any]] = [rows.aggregate(**totals)]
    else:
        columns = {GROUPS[group]: group for group in groups}
        by_group = rows.order_by().values(*columns).annotate(**{f"of_{name}": total for name, total in totals.items()})
        lines = [
            {columns.get(name, name.removeprefix("of_")): value for name, value in row.items()} for row in by_group
        ]
    shown = [{**row, **{name: row[name] or 0 for name in COUNTS}} for row in lines]
    for row in shown:
        row["dollars"] = (row.pop("charge") or 0) / NANO
    return sorted(shown, key=lambda row: (-row["prompt_tokens"] - row["output_tokens"], *(str(row[g]) for g in groups)))


def choices(actor: Actor, query: UsageQuery) -> dict[str, list[str]]:
    """Return the names that the filter offers."""
    rows = UsageQuery(query.since, query.until, {}).rows(actor).order_by()
    lines = {
        name: sorted(text for text in rows.values_list(GROUPS[name], flat=True).distinct()[:500] if text)
        for name in NAMED
    }
    return {name: sorted({*texts, *filter(None, (query.names.get(name),))}) for name, texts in lines.items()}


def key_names(key_ids: Iterable[str]) -> dict[str, str]:
    """Return the name and tenant of each key that exists."""
    lines = ApiKey.objects.filter(key_id__in=list(key_ids)).values_list("key_id", "name", "prefix")
    return {key_id: f"{name} ({prefix}…)" for key_id, name, prefix in lines}


@dataclass(frozen=True, slots=True)
class PoolMoney:
    """What one model's engines in one pool cost in a time span, in dollars."""

    pool: str
    model: str
    engine_h: float
    unpriced_h: float
    """Hours of engines without a price."""
    cost: float | None
    """Of the other hours; None without any."""
    tokens: int
    saved: float | None
    """Prefill time that cache hits saved, at the engines' price; None also if no prefill was measured."""

    @property
    def per_million(self) -> float | None:
        """Return dollars per million tokens served; None without tokens, or if an engine has no price."""
        return (
            self.cost / self.tokens * 1e6 if self.cost is not None and self.tokens and self.unpriced_h < 1e-6 else None
        )


def money(actor: Actor, query: UsageQuery) -> list[PoolMoney]:
    """Return the engines' cost of each pool and model. Names of keys and tenants do not restrict it."""
    of_pools = UsageQuery(query.since, query.until, {name: query.names.get(name, "") for name in ("pool", "model")})
    served = {(row["pool"], row["model"]): row for row in sums(of_pools.rows(actor), "pool", "model")}
    engines = EngineDay.objects.filter(day__gte=query.since, day__lte=query.until, pool__in=_slugs(actor))
    named = {name: text for name in ("pool", "model") if (text := query.names.get(name))}
    totals = engines.filter(**named).order_by("pool", "model").values("pool", "model")
    lines = []
    for row in totals.annotate(s=Sum("engine_s"), priced=Sum("priced_s"), dollars=Sum("cost")):
        used = served.get((row["pool"], row["model"]), dict.fromkeys(COUNTS, 0))
        priced, tokens = row["priced"], used["prompt_tokens"] + used["output_tokens"]
        token_s = _saved_s_per_token(row["pool"]) if priced else None
        saved = None if token_s is None else used["cached_tokens"] * token_s * row["dollars"] / priced
        hours, unpriced_h = row["s"] / 3600, (row["s"] - priced) / 3600
        cost = row["dollars"] if priced else None
        lines.append(PoolMoney(row["pool"], row["model"], hours, unpriced_h, cost, tokens, saved))
    return lines


def _saved_s_per_token(pool: str) -> float | None:
    """Return the measured seconds by which a cached prompt token is faster, None if nothing was measured."""
    costs = [msgspec.convert(cost.fitted, prepared(FittedCost)) for cost in LearnedCost.objects.filter(pool__slug=pool)]
    measured = [cost for cost in costs if cost.samples]
    if not measured:
        return None
    most = max(measured, key=lambda cost: cost.samples).prefill
    return max(0.0, most.per_token_s - most.per_hit_token_s)


@dataclass(frozen=True, slots=True)
class BudgetUse:
    """One budget in its current window. Amounts in tokens or dollars."""

    budget: Budget
    spent: float
    rejected: int
    would_reject: int
    resets_at: datetime

    @property
    def share(self) -> float:
        """Return the used share, 1 at the amount."""
        return self.spent / self.budget.amount

    @property
    def overshoot(self) -> float:
        """Return what was spent beyond the amount."""
        return max(0.0, self.spent - self.budget.amount)


def budget_uses(budgets: Iterable[Budget], now: datetime) -> list[BudgetUse]:
    """Return the use of these budgets in their current windows, the most used first."""
    uses = []
    for budget in budgets:
        start = window_start(budget.window, int(now.timestamp() * 1000))
        spending = getattr(budget, "spending", None)
        window = spending.windows.get(str(start), {}) if spending is not None else {}
        spent = window.get("spent", 0) / (NANO if budget.unit == BudgetUnit.DOLLARS else 1)
        resets_at = datetime.fromtimestamp(window_end(budget.window, start) / 1000, UTC)
        uses.append(BudgetUse(budget, spent, window.get("rejected", 0), window.get("would_reject", 0), resets_at))
    return sorted(uses, key=lambda use: (-use.share, use.budget.slug))


def usage_of(actor: Actor, tenant: str, key_id: str = "", *, days: int = 30) -> dict[str, Any]:
    """Return the usage of a tenant, or of one of its keys, in the last days, and the budgets that apply to it."""
    now = datetime.now(UTC)
    query = UsageQuery(now.date() - timedelta(days=days - 1), now.date(), {"tenant": tenant, "key": key_id})
    budgets = Budget.objects.select_related("tenant", "spending").filter(tenant__slug=tenant)
    if key_id:
        budgets = budgets.filter(key_id__in=("", key_id))
    total = sums(query.rows(actor))[0]
    tokens = total["prompt_tokens"] + total["output_tokens"]
    address = f"key={key_id}&group=day" if key_id else f"tenant={tenant}&group=key"
    return {"days": days, "total": total, "tokens": tokens, "uses": budget_uses(budgets, now), "address": address}
