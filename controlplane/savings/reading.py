"""Sums of the ledger of savings by pool, alternative, and tenant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from django.db.models import Count, F, Q, QuerySet, Sum
from django.utils import timezone

from controlplane.fleet.models.pool import Pool
from controlplane.fleet.visibility import visible_pools
from controlplane.platform.actor import Actor
from controlplane.platform.role import Role
from controlplane.platform.roles import may
from controlplane.savings.models.savings_rows import Saving, SavingsDay, SavingsState
from planning.savings.day_savings import RangedFigure

TITLES = {
    "round_robin": "Round robin",
    "llmd_weighted": "GIE scorer",
    "dynamo_kv": "Dynamo KV router",
    "sglang_cache_aware": "SGLang cache-aware",
}
"""Titles of alternatives; others are versions of the pool's own policy."""
STORED_AFTER = timedelta(minutes=20)
"""Time after the end of a day at which its requests have ended and are stored."""
_ENDS = ("", "_low", "_high")


@dataclass(frozen=True, slots=True)
class SavingsQuery:
    """Which part of the ledger: UTC days from `since` to `until`, both inclusive; empty names: all."""

    since: date
    until: date
    pool: str = ""
    tenant: str = ""

    def days(self, actor: Actor) -> QuerySet[SavingsDay]:
        """Return the pools' days that the actor may see, in order."""
        rows = SavingsDay.objects.filter(day__gte=self.since, day__lte=self.until)
        if self.pool:
            rows = rows.filter(pool=self.pool)
        if not may(actor, Role.VIEWER):
            rows = rows.filter(pool__in=visible_pools(actor).values("slug"))
        return rows.order_by("day", "pool")

    def rows(self, actor: Actor) -> QuerySet[Saving]:
        """Return the savings of those days, of the tenant or of whole pools."""
        return self.all_rows(actor).filter(tenant=self.tenant)

    def all_rows(self, actor: Actor) -> QuerySet[Saving]:
        """Return the savings of those days: of whole pools, and of each tenant."""
        return Saving.objects.filter(of_day__in=self.days(actor))


@dataclass(frozen=True, slots=True)
class SavingsTotal:
    """Savings in a time span against one alternative. Ends of days' ranges are added, since days share causes."""

    pool: str
    alternative: str
    tenant: str
    days: int
    """Replayed days."""
    unpriced_days: int
    """Those without a price of engines, which `dollars` lacks."""
    capped: bool
    """Whether `engine_h` and `dollars` are lower bounds."""
    late: RangedFigure
    engine_h: RangedFigure
    dollars: RangedFigure | None
    """None: no day has a price."""

    @property
    def title(self) -> str:
        """Return the alternative in words."""
        return title_of(self.alternative)


def title_of(alternative: str) -> str:
    """Return an alternative in words."""
    return TITLES.get(alternative, f"Own policy {alternative}")


def totals(rows: QuerySet[Saving]) -> list[SavingsTotal]:
    """Return the sums by pool, alternative, and tenant: other routers in order of TITLES, then earlier versions."""
    price = F("of_day__price_per_h")
    sums: dict[str, Any] = {
        "n": Count("pk"),
        "unpriced": Count("pk", filter=Q(of_day__price_per_h=None)),
        "lower_bound": Count("pk", filter=Q(capped=True)),
        # Of another name than the columns.
        **{f"sum_{name}{end}": Sum(f"{name}{end}") for name in ("late", "engine_h") for end in _ENDS},
        **{f"sum_dollars{end}": Sum(F(f"engine_h{end}") * price) for end in _ENDS},
    }
    order, groups = list(TITLES), ("of_day__pool", "alternative", "tenant")
    grouped = rows.values(*groups).annotate(**sums).order_by(*groups)
    made = [
        SavingsTotal(
            row["of_day__pool"],
            row["alternative"],
            row["tenant"],
            row["n"],
            row["unpriced"],
            row["lower_bound"] > 0,
            _range(row, "late"),
            _range(row, "engine_h"),
            None if row["sum_dollars"] is None else _range(row, "dollars"),
        )
        for row in grouped
    ]
    return sorted(made, key=lambda item: (item.pool, order.index(item.alternative) if item.alternative in order else 9))


def _range(row: Mapping[str, Any], name: str) -> RangedFigure:
    mid, low, high = (row[f"sum_{name}{end}"] for end in _ENDS)
    return RangedFigure(mid, low, high)


def missing_days(query: SavingsQuery, stored: Sequence[SavingsDay]) -> list[SavingsDay]:
    """Return a row, not stored, for each ended day without one since the first of its pool."""
    known = {(item.pool, item.day) for item in stored}
    first: dict[str, date] = {}
    for item in stored:
        first.setdefault(item.pool, item.day)
    last = min(query.until, timezone.now().date() - timedelta(days=1))
    return [
        SavingsDay(day=day, pool=pool, state=SavingsState.NOT_REPLAYED)
        for pool, begin in first.items()
        for day in (begin + timedelta(days=number) for number in range((last - begin).days + 1))
        if (pool, day) not in known
    ]


def since_first_record(days: Sequence[SavingsDay]) -> list[SavingsDay]:
    """Return the days without those before the first that has recorded requests."""
    first = min((item.day for item in days if item.state != SavingsState.NOT_RECORDED), default=date.max)
    return [item for item in days if item.day >= first]


def next_replay(now: datetime) -> datetime:
    """Return when the current day will be replayed."""
    return datetime.combine(now.date() + timedelta(days=1), time(), UTC) + STORED_AFTER


def named_pools(actor: Actor, rows: QuerySet[SavingsDay]) -> list[str]:
    """Return the pools of these days, and those that exist, which the actor may see."""
    slugs: list[str] = list(visible_pools(actor).values_list("slug", flat=True))
    return sorted({*slugs, *rows.order_by().values_list("pool", flat=True).distinct()})


def operated_pools(actor: Actor) -> list[Pool]:
    """Return the pools whose days the actor may replay."""
    return [pool for pool in visible_pools(actor).order_by("slug") if may(actor, Role.OPERATOR, pool)]
