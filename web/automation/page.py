"""The Steering pages: how each pool steers itself, why it does what it does, and the hand at the wheel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from controlplane.fleet.models.pool import Pool
from controlplane.fleet.visibility import visible_pools
from controlplane.platform.actor import CONSOLE, Actor
from controlplane.platform.request_actor import actor_of
from controlplane.platform.role import Role
from controlplane.platform.roles import may
from web.access.page import asked
from web.automation.overview import overview_rows
from web.automation.pool import pool_page
from web.automation.questions import AutomationQuestion, ask
from web.history.past_range import RANGES
from web.shell.frame import shell_context
from web.shell.moments import moment

MAX_POOLS = 200
RANGE_WORDS = (("5m", "5 min", "1"), ("1h", "1 h", "2"), ("24h", "24 h", "3"))
SAID = {
    "frozen": "Frozen. No automation of the pool acts.",
    "unfrozen": "Unfrozen. Automations continue with their next round.",
    "held": "Engine count fixed from the next round, within 5 s.",
    "given-back": "Override ended.",
    "ordered": "Started. Follow its progress under Actions.",
    "confirmed": "Marked as done.",
    "withdrawn": "Action canceled.",
    "quarantined": "Quarantined. Gateways apply it within a second.",
    "trusted": "Returned to service. Gateways apply it within a second.",
    "nothing": "No changes.",
}


@require_safe
@never_cache
def steering(request: HttpRequest) -> HttpResponse:
    """Show one row per pool: who steers it, and what its automations make of it."""
    now = timezone.now()
    pools = seen_pools(actor_of(request, CONSOLE))
    context = shell_context(request, page="Automation", rows=overview_rows(pools, now), at=moment(now, now))
    return render(request, "automation/page.html", context)


@require_safe
@never_cache
def steering_pool(request: HttpRequest, slug: str) -> HttpResponse:
    """Show one pool, and the question that the address asks."""
    actor = actor_of(request, CONSOLE)
    pool = seen_pool(actor, slug)
    do = asked(request, "do", 32)
    query = {name: asked(request, name, 64) for name in ("job", "order", "engine")}
    question = ask(pool, do, query, timezone.now()) if do and may(actor, Role.OPERATOR, pool) else None
    return pool_response(request, actor, pool, question)


def pool_response(
    request: HttpRequest,
    actor: Actor,
    pool: Pool,
    question: AutomationQuestion | None,
    *,
    status: int = 200,
    trouble: str = "",
) -> HttpResponse:
    """Render the page of one pool; `?fragment` the changing parts alone. `trouble` is said where no question is."""
    address = reverse("steering-pool", args=[pool.slug])
    asked_for = request.POST if request.method == "POST" else request.GET
    kept = {name: asked_for[name][:24] for name in ("range", "end") if asked_for.get(name)}
    chosen = kept.get("range", "1h")
    context: dict[str, Any] = shell_context(
        request,
        page="Automation",
        **pool_page(pool, actor, timezone.now()),
        ask=question,
        trouble=trouble if question is None else "",
        here=address,
        keep=f"{urlencode(kept)}&" if kept else "",
        kept=kept.items(),
        close=f"{address}?{urlencode(kept)}" if kept else address,
        said=SAID.get(request.GET.get("said", ""), ""),
        ranges=RANGE_WORDS,
        range=chosen if chosen in RANGES else "1h",
    )
    if "fragment" in request.GET:
        return render(request, "automation/live.html", context)
    context["pools"] = seen_pools(actor)
    return render(request, "automation/pool.html", context, status=status)


def seen_pools(actor: Actor) -> Sequence[Pool]:
    """Return the pools that the person may see, by region and name, with what steers them."""
    pools = visible_pools(actor).select_related("region", "policy__live_version", "steering")
    return list(pools.order_by("region__slug", "slug")[:MAX_POOLS])


def seen_pool(actor: Actor, slug: str) -> Pool:
    """Return one of them; 404 otherwise."""
    pools = visible_pools(actor).select_related("region", "policy__live_version", "steering")
    return get_object_or_404(pools, slug=slug)
