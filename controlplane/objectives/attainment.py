"""What share of requests was on time, and what is left of the error budget.

The last day is read from the stored history, in columns of two minutes that count the requests that ended, also those
of a gap before the column. Columns without these counts are weighted by their request rate. 30 days are read from the
ledger of usage, which counts each request once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from typing import Any, TypeAlias

from django.db.models import Case, F, Min, Q, QuerySet, When

from controlplane.fleet.models.pool import Pool
from controlplane.history.bucket import POOL_FLOATS
from controlplane.history.rollups import COARSE_S
from controlplane.history.store import read_past
from controlplane.objectives.objective import Objective, targets
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.policies.publish import PUBLISH, ROLL_BACK
from controlplane.request_log.decision_search import COUNTED, ON_TIME, STATES, represented
from controlplane.request_log.models.decision_index import DecisionIndex
from controlplane.usage.models.usage_rows import UsageDay
from controlplane.usage.summary import sums
from gateway.contracts.outcomes import LENGTHS

WINDOW_DAYS = 30
MAX_PARTS = 20
"""Number of tenants, and of ranges of prompt lengths."""
_SHARE, _PER_S = POOL_FLOATS.index("on_time"), POOL_FLOATS.index("requests_per_s")
_ON_TIME, _COUNTED = POOL_FLOATS.index("on_time_requests"), POOL_FLOATS.index("counted_requests")
_HOUR_S = 3600.0
_Z = 1.96
MAX_PUBLISHES, MAX_SPAN = 5, timedelta(hours=1)
Reading: TypeAlias = tuple[float, float, float]
OnTimeInterval: TypeAlias = tuple[float | None, float | None, float | None]
"""Share, lower and upper bound, 0..1; None: no requests, or not recorded."""


@dataclass(frozen=True, slots=True)
class Attainment:
    """Shares of requests on time, 0..1; None: no requests, or not recorded."""

    hour: float | None
    six_hours: float | None
    day: float | None
    yesterday: float | None
    """The same hour a day before."""
    window: float | None
    """The last WINDOW_DAYS UTC days, with today."""
    budget_left: float | None
    """Share of the window's error budget; negative: overspent."""
    target: float
    since: datetime | None = None
    """When the oldest data of the window begins; None: there are none."""

    def burn(self, share: float | None) -> float | None:
        """Return how many times as fast as allowed the budget was used; 1 uses it up exactly in the window."""
        return None if share is None else (1.0 - share) / (1.0 - self.target)


def attainment(objective: Objective, now: datetime) -> Attainment:
    """Return the attainment of the objective's pools."""
    pools = _covered(objective)
    stored = _readings(now - timedelta(hours=25), now, [objective.pool] if objective.pool else None)
    readings = [reading for pool, mine in stored.items() if pools(pool) for reading in mine]
    ended = _ended(now)
    ended = ended.filter(pool=objective.pool) if objective.pool else ended.exclude(pool__in=_others())
    first = ended.order_by("day").values_list("day", flat=True).first()
    return _attained(readings, sums(ended)[0], objective.target / 100, now, first)


def attainment_by_pool(pools: Collection[str], now: datetime) -> dict[str, Attainment]:
    """Return the attainment of each pool, with the target that applies to it."""
    stored, known = _readings(now - timedelta(hours=25), now, pools), targets()
    ended = _ended(now).filter(pool__in=pools)
    totals = {row["pool"]: row for row in sums(ended, "pool")}
    first = dict(ended.order_by().values_list("pool").annotate(Min("day")))
    return {
        pool: _attained(stored.get(pool, []), totals.get(pool), known.get(pool, known[""]), now, first.get(pool))
        for pool in pools
    }


def budget_line(pool: str, reached: Attainment, now: datetime) -> list[tuple[datetime, float]]:
    """Return what was left of the error budget over time: from all of it at the first data to `budget_left` now.

    It falls where requests missed the objective: in columns of two minutes within the last day, else by UTC day.
    Empty without requests.
    """
    if reached.since is None or reached.budget_left is None:
        return []
    if reached.since > now - timedelta(days=1):
        readings = _readings(reached.since, now, [pool]).get(pool, [])
        steps = [(datetime.fromtimestamp(at + COARSE_S, UTC), number - met) for at, met, number in readings]
    else:
        days = sums(_ended(now).filter(pool=pool), "day")
        steps = [(_midnight(row["day"]) + timedelta(days=1), float(_missed(row)[0])) for row in days]
    left, used, total = 1.0, 1.0 - reached.budget_left, sum(missed for _, missed in steps)
    line = [(reached.since, left)]
    for at, missed in sorted(steps):
        left -= used * missed / total if total else 0.0
        line.append((min(at, now), left))
    return [*line, (now, reached.budget_left)]


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time.min, UTC)


def _readings(since: datetime, until: datetime, pools: Collection[str] | None) -> dict[str, list[Reading]]:
    """Return (start, requests on time, requests) of the stored columns that end in the time span, by pool."""
    first, last = math.ceil(since.timestamp() / COARSE_S), int(until.timestamp() // COARSE_S) - 1
    readings: dict[str, list[Reading]] = {}
    for column in read_past(COARSE_S, first, last, pools).columns:
        for pool, values in column.pools.items():
            on_time, requests = values[_ON_TIME], values[_COUNTED]
            if math.isnan(requests) and not math.isnan(values[_SHARE]):
                requests = values[_PER_S] * COARSE_S
                on_time = values[_SHARE] * requests
            if requests > 0:
                readings.setdefault(pool, []).append((float(column.index * COARSE_S), on_time, requests))
    return readings


def _ended(now: datetime) -> QuerySet[UsageDay]:
    return UsageDay.objects.filter(day__gt=now.date() - timedelta(days=WINDOW_DAYS)).exclude(pool="")


def _attained(
    readings: list[Reading], total: dict[str, Any] | None, target: float, now: datetime, first: date | None
) -> Attainment:
    at, window = now.timestamp(), None if total is None else _window(total)
    since = _midnight(first) if first is not None else None
    if since is not None and since > now - timedelta(days=1) and readings:
        # The ledger knows the day; the history of the last day knows its first requests.
        since = datetime.fromtimestamp(min(begin for begin, *_ in readings), UTC)
    return Attainment(
        hour=_share(readings, at - _HOUR_S, at),
        six_hours=_share(readings, at - 6 * _HOUR_S, at),
        day=_share(readings, at - 24 * _HOUR_S, at),
        yesterday=_share(readings, at - 25 * _HOUR_S, at - 24 * _HOUR_S),
        window=window,
        budget_left=None if window is None else 1.0 - (1.0 - window) / (1.0 - target),
        target=target,
        since=since,
    )


@dataclass(frozen=True, slots=True)
class PartAttainment:
    """Shares of the requests of one tenant, or of one range of prompt lengths, that were on time."""

    tenant: str
    """Empty: all tenants."""
    prompt_from: int | None
    """Lower bound of the range in tokens; None: all lengths."""
    prompt_below: int | None
    """Upper bound, not included; None: none, or all lengths."""
    hour: float | None
    day: float | None
    window: float | None
    """None for a range of lengths, which the ledger does not distinguish."""
    requests: float
    """In the last 24 hours; sampled records count for those that they represent."""


def attainment_by_part(pool: str, now: datetime) -> list[PartAttainment]:
    """Return the attainment by tenant, those with the most requests first, and by prompt length, shortest first.

    Hour and day are those of the recorded requests by arrival, the window is that of the ledger.
    """
    now_ms = int(now.timestamp() * 1000)
    rows = DecisionIndex.objects.filter(pool=pool, at_ms__gte=now_ms - 24 * 3_600_000).order_by()
    hour, met = Q(at_ms__gte=now_ms - 3_600_000), STATES[ON_TIME]
    counted = {"day": COUNTED, "day_met": met, "hour": hour, "hour_met": hour & met}
    ranges = (When(prompt_tokens__gte=start, then=start) for start in reversed(LENGTHS))
    parts, above = [], dict[int | str, int](pairwise(LENGTHS))
    for name, key in (("tenant", F("tenant")), ("prompt_from", Case(*ranges, default=0))):
        grouped = (
            rows.filter(COUNTED)
            .annotate(part=key)
            .values("part")
            .annotate(**{name_: represented(rows_) for name_, rows_ in counted.items()})
        )
        totals = sums(_ended(now).filter(pool=pool), "tenant") if name == "tenant" else ()
        window = {row["tenant"]: _window(row) for row in totals}
        parts += [
            PartAttainment(
                **{"tenant": "", "prompt_from": None, name: row["part"]},
                hour=(row["hour_met"] or 0.0) / row["hour"] if row["hour"] else None,
                day=(row["day_met"] or 0.0) / row["day"],
                prompt_below=above.get(row["part"]),
                window=window.get(row["part"]),
                requests=row["day"],
            )
            for row in sorted(grouped, key=lambda row: -row["day"] if name == "tenant" else row["part"])[:MAX_PARTS]
        ]
    return parts


def _window(total: Mapping[str, Any]) -> float | None:
    missed, counted = _missed(total)
    return 1.0 - missed / counted if counted > 0 else None


def _missed(total: Mapping[str, Any]) -> tuple[int, int]:
    """Return the requests that missed the objective, and those that count."""
    missed = total["late"] + total["failed"] + total["rejected"]
    return missed, total["requests"] - total["client_ended"] - total["unreported"]


@dataclass(frozen=True, slots=True)
class PublishEffect:
    """The on-time share in equal time spans before and after a version went live, each with its 95 % interval."""

    version: int
    by: str
    at: datetime
    span: timedelta
    both: tuple[OnTimeInterval, OnTimeInterval]
    """Before and after."""


def publish_effects(pool: Pool, now: datetime) -> list[PublishEffect]:
    """Return the effect of each of the pool's last publishes, newest first. Spans contain no other publish."""
    events = AuditEvent.objects.filter(
        object_kind="policy", object_id=pool.policy.slug, verb__in=(PUBLISH, ROLL_BACK), at__lte=now
    ).order_by("-at", "-pk")
    rows = list(events.values_list("at", "actor_name", "after__number")[: MAX_PUBLISHES + 1])
    effects = []
    for row, (at, by, number) in enumerate(rows[:MAX_PUBLISHES]):
        until = rows[row - 1][0] if row else now
        since = rows[row + 1][0] if row + 1 < len(rows) else at - MAX_SPAN
        span = min(MAX_SPAN, until - at, at - since)
        before, after = (_readings(start, start + span, [pool.slug]).get(pool.slug, []) for start in (at - span, at))
        effects.append(PublishEffect(number, by, at, span, (_interval(before), _interval(after))))
    return effects


def _interval(readings: list[Reading]) -> OnTimeInterval:
    """Return the share with its interval by Wilson (1927)."""
    share = _share(readings, -math.inf, math.inf)
    number = sum(requests for *_, requests in readings)
    if share is None:
        return None, None, None
    spread = _Z**2 / number
    middle, half = share + spread / 2, _Z * math.sqrt(share * (1 - share) / number + spread / number / 4)
    return share, (middle - half) / (1 + spread), (middle + half) / (1 + spread)


def on_time_since(since: Mapping[str, datetime], now: datetime) -> dict[str, float | None]:
    """Return each pool's on-time share since the given time, over at most the last day.

    Only columns of two minutes that lie completely after that time count; None: there is none yet.
    """
    earliest = max(min(since.values(), default=now), now - timedelta(days=1))
    readings = _readings(earliest, now, since) if since else {}
    return {pool: _share(readings.get(pool, []), at.timestamp(), now.timestamp()) for pool, at in since.items()}


def _others() -> list[str]:
    return list(Objective.objects.exclude(pool="").values_list("pool", flat=True))


def _covered(objective: Objective) -> Callable[[str], bool]:
    if objective.pool:
        return lambda pool: pool == objective.pool
    others = set(_others())
    return lambda pool: pool not in others


def _share(readings: list[Reading], since: float, until: float) -> float | None:
    """Return the on-time share of the requests in the columns that begin in the time span."""
    known = [(on_time, requests) for at, on_time, requests in readings if since <= at < until]
    total = sum(requests for _, requests in known)
    return sum(on_time for on_time, _ in known) / total if total else None
