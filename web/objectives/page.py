"""The Objectives page: targets, attainment, error budget, and burn rate."""

from __future__ import annotations

from django.utils import timezone
from django.views.decorators.http import require_http_methods

from controlplane.fleet.models.pool import Pool
from controlplane.objectives.attainment import attainment
from controlplane.objectives.objective import OBJECTIVES, Objective
from controlplane.platform.format import or_dash, percent
from web.shell.form_field import FieldOption
from web.shell.no_role import needs_all_pools
from web.shell.object_pages import ObjectPages, Options

PAGE = "Objectives"
SAID = {
    "created": "Added; incidents use it at once.",
    "changed": "Changed; incidents use it at once.",
    "deleted": "Deleted.",
}


def _options() -> Options:
    named = [FieldOption(pool.slug, pool.name) for pool in Pool.objects.order_by("slug")[:500]]
    return {"pool": [FieldOption("", "all other pools"), *named]}


def _reached(objective: Objective) -> list[tuple[str, str]]:
    now = attainment(objective, timezone.now())
    burns = (or_dash(now.burn(share), "{:.1f} ×".format) for share in (now.hour, now.six_hours))
    return [
        ("Last hour", percent(now.hour)),
        ("Same hour yesterday", percent(now.yesterday)),
        ("24 h", percent(now.day)),
        ("30 days", percent(now.window)),
        ("Budget left", percent(now.budget_left)),
        ("Burn, 1 h and 6 h", ", ".join(burns)),
    ]


_PAGES = ObjectPages(
    OBJECTIVES,
    "objective",
    PAGE,
    "/objectives",
    "objectives/page.html",
    lambda _actor: (),
    "objectives",
    SAID,
    more=_reached,
    blanks={"Pool": "all others"},
    options=_options,
)
all_pools_only = needs_all_pools(PAGE, "Objectives apply to the whole fleet. Viewing them")
objectives = require_http_methods(["GET", "HEAD", "POST"])(all_pools_only(_PAGES.view))
