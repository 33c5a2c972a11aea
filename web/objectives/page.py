"""The Objectives page: targets, attainment, error budget, and burn rate."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from controlplane.fleet.models.pool import Pool
from controlplane.objectives.attainment import (
    Attainment,
    attainment,
    attainment_by_part,
    attainment_by_pool,
    publish_effects,
)
from controlplane.objectives.objective import OBJECTIVES
from controlplane.platform.format import or_dash, percent
from controlplane.platform.live_fleet.samples import fleet_samples
from web.shell.console_request import asked
from web.shell.form_field import FieldOption
from web.shell.no_role import needs_all_pools
from web.shell.object_pages import ObjectPages, Options

PAGE = "Objectives"
MAX_POOLS = 200
SAID = {
    "created": "Added; incidents use it at once.",
    "changed": "Changed; incidents use it at once.",
    "deleted": "Deleted.",
}


def _options() -> Options:
    named = [FieldOption(pool.slug, pool.name) for pool in Pool.objects.order_by("slug")[:500]]
    return {"pool": [FieldOption("", "all other pools"), *named]}


def _figures(now: Attainment) -> list[tuple[str, str]]:
    burns = (or_dash(now.burn(share), "{:.1f} ×".format) for share in (now.hour, now.six_hours))
    return [
        ("Last hour", percent(now.hour)),
        ("Same hour yesterday", percent(now.yesterday)),
        ("24 h", percent(now.day)),
        ("30 days", percent(now.window)),
        ("Budget left", percent(now.budget_left)),
        ("Burn, 1 h and 6 h", ", ".join(burns)),
    ]


def _besides(request: HttpRequest) -> dict[str, Any]:
    """Return the attainment of each pool, and the publishes of the chosen one, else of the first."""
    now, slug = timezone.now(), asked(request, "pool")
    pools = list(Pool.objects.select_related("policy").order_by("slug")[:MAX_POOLS])
    reached = attainment_by_pool([pool.slug for pool in pools], now)
    chosen = next((pool for pool in pools if pool.slug == slug), pools[0] if pools else None)
    missed = [pool.name for pool in pools if (reached[pool.slug].budget_left or 0.0) < 0]
    return {
        "below": missed,
        "pools": [(pool, reached[pool.slug].target, _figures(reached[pool.slug])) for pool in pools],
        "chosen": chosen,
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
    more=lambda objective: _figures(attainment(objective, timezone.now())),
    besides=_besides,
    blanks={"Pool": "all others"},
    options=_options,
)
all_pools_only = needs_all_pools(PAGE, "Objectives apply to the whole fleet. Viewing them")
objectives = require_http_methods(["GET", "HEAD", "POST"])(all_pools_only(_PAGES.view))
