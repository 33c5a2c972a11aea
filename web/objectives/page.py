"""The Objectives page: targets, attainment, error budget, and burn rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.http import HttpRequest
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from controlplane.fleet.models.pool import Pool
from controlplane.objectives.attainment import (
    WINDOW_DAYS,
    Attainment,
    attainment,
    attainment_by_part,
    attainment_by_pool,
    budget_line,
    publish_effects,
)
from controlplane.objectives.objective import OBJECTIVES, Objective
from controlplane.platform.format import brief_percent, clock_time, day_time, or_dash, percent, span
from controlplane.platform.live_fleet.samples import fleet_samples
from web.shell.chart import Tick, place, point, x, y
from web.shell.console_request import asked
from web.shell.form_field import FieldOption
from web.shell.no_role import needs_all_pools
from web.shell.object_pages import ObjectPages, Options

PAGE = "Objectives"
MAX_POOLS = 200
_DAY_S = 86_400.0
_TICKS = 5
SAID = {
    "created": "Added; incidents use it at once.",
    "changed": "Changed; incidents use it at once.",
    "deleted": "Deleted.",
}


def _options() -> Options:
    named = [FieldOption(pool.slug, pool.name) for pool in Pool.objects.order_by("slug")[:500]]
    return {"pool": [FieldOption("", "all other pools"), *named]}


def _figures(now: Attainment, at: datetime) -> list[tuple[str, str, str]]:
    """Return title, figure, and what limits it: less data than its window."""
    burns = (or_dash(now.burn(share), "{:.1f} ×".format) for share in (now.hour, now.six_hours))
    short = _short(now, at)
    return [
        ("Last hour", percent(now.hour), ""),
        ("Same hour yesterday", percent(now.yesterday), ""),
        ("24 h", percent(now.day), ""),
        ("30 days", percent(now.window), short),
        ("Budget left", percent(now.budget_left), short),
        ("Burn, 1 h and 6 h", ", ".join(burns), ""),
    ]


def _facts(objective: Objective) -> list[tuple[str, str]]:
    now = timezone.now()
    rows = _figures(attainment(objective, now), now)
    return [(title, f"{figure} ({note})" if note else figure) for title, figure, note in rows]


def _short(now: Attainment, at: datetime) -> str:
    """Return how much data there is, such as "4 min of data"; empty if that is the window, or none."""
    known = at - now.since if now.since is not None else None
    full = timedelta(days=WINDOW_DAYS - 1)
    return f"{span(known.total_seconds())} of data" if known is not None and known < full else ""


@dataclass(frozen=True, slots=True)
class BudgetPicture:
    """The error budget over time, in percent of width and height."""

    points: str
    empty: str
    """Where the budget is used up."""
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]


def _budget_picture(line: Sequence[tuple[datetime, float]]) -> BudgetPicture | None:
    """Return the picture of what was left; None without requests."""
    if not line:
        return None
    first, last = line[0][0].timestamp(), line[-1][0].timestamp()
    low = min(0.0, *(left for _, left in line))

    def across(at: float) -> float:
        return x((at - first) / (last - first)) if last > first else x(1.0)

    def up(left: float) -> float:
        return (left - low) / (1.0 - low)

    words = day_time if last - first > _DAY_S else clock_time
    times = [first + (last - first) * number / _TICKS for number in range(_TICKS)]
    return BudgetPicture(
        points=" ".join(point(across(at.timestamp()), up(left)) for at, left in line),
        empty=place(y(up(0.0))),
        across=tuple(Tick(place(across(at)), words(at)) for at in times),
        up=tuple(Tick(place(y(up(left))), brief_percent(left)) for left in sorted({low, 0.0, 0.5, 1.0})),
    )


def _besides(request: HttpRequest) -> dict[str, Any]:
    """Return the attainment of each pool, and the publishes of the chosen one, else of the first."""
    now, slug = timezone.now(), asked(request, "pool")
    pools = list(Pool.objects.select_related("policy").order_by("slug")[:MAX_POOLS])
    reached = attainment_by_pool([pool.slug for pool in pools], now)
    chosen = next((pool for pool in pools if pool.slug == slug), pools[0] if pools else None)
    missed = [pool.name for pool in pools if (reached[pool.slug].budget_left or 0.0) < 0]
    known = [item for item in reached.values() if item.since is not None]
    line = budget_line(chosen.slug, reached[chosen.slug], now) if chosen is not None else []
    return {
        "below": missed,
        "known": bool(known),
        "short": _short(min(known, key=lambda item: item.since or now), now) if known else "",
        "pools": [(pool, reached[pool.slug].target, _figures(reached[pool.slug], now)) for pool in pools],
        "chosen": chosen,
        "budget": _budget_picture(line),
        "budget_left": line[-1][1] if line else None,
        "parts": attainment_by_part(chosen.slug, now) if chosen is not None else (),
        "classes": _classes(chosen.slug) if chosen is not None else (),
        "effects": publish_effects(chosen, now) if chosen is not None else (),
    }


def _classes(pool: str) -> list[tuple[str, float, int]]:
    """Return the on-time share and the requests of each SLO class since the gateways started, as they count them."""
    sample = fleet_samples().latest
    outcomes = (
        next((item.outcomes for item in sample.pools if item.pool_id == pool), None) if sample is not None else None
    )
    rows = sorted((outcomes.classes if outcomes is not None else {}).items(), key=lambda row: -row[1].requests)
    return [(name or "no class", row.on_time / row.requests, row.requests) for name, row in rows if row.requests]


_PAGES = ObjectPages(
    OBJECTIVES,
    "objective",
    PAGE,
    "/objectives",
    "objectives/page.html",
    lambda _actor: (),
    "objectives",
    SAID,
    more=_facts,
    besides=_besides,
    blanks={"Pool": "all others"},
    options=_options,
)
all_pools_only = needs_all_pools(PAGE, "Objectives apply to the whole fleet. Viewing them")
objectives = require_http_methods(["GET", "HEAD", "POST"])(all_pools_only(_PAGES.view))
