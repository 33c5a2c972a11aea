"""The Automation pages: how each pool scales and repairs itself, why, and what people can override."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import msgspec
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import Actor
from controlplane.platform.format import moment, span
from controlplane.platform.role import Role
from controlplane.platform.roles import may
from web.automation.overview import overview_finding, overview_rows
from web.automation.past import automation_past
from web.automation.plan_rows import plan_rows
from web.automation.pool import pool_page
from web.automation.questions import AutomationQuestion, ask
from web.history.past_range import RANGES, BadRangeError, stretch_of
from web.live.feed import fleet_feed
from web.shell.console_request import asked, console_actor
from web.shell.frame import shell_context
from web.shell.shown_pools import shown_pool, shown_pools

RANGE_WORDS = (("5m", "5 min", "1"), ("1h", "1 h", "2"), ("24h", "24 h", "3"))
SAID = {
    "frozen": "Frozen. Automations of the pool take no action.",
    "unfrozen": "Unfrozen. Automations continue with their next evaluation.",
    "held": "Engine count fixed from the next evaluation, within 5 s.",
    "given-back": "Override ended.",
    "requested": "Started. Follow its progress under Actions.",
    "confirmed": "Marked as done.",
    "withdrawn": "Action canceled.",
    "quarantined": "Quarantined. Gateways apply it within a second.",
    "trusted": "Returned to service. Gateways apply it within a second.",
    "nothing": "No changes.",
}


@require_safe
def automation(request: HttpRequest) -> HttpResponse:
    """Show one row per pool, with what its automations do, and their recent plans."""
    now = timezone.now()
    pools = shown_pools(console_actor(request))
    rows = overview_rows(pools, now)
    context = shell_context(
        request,
        page="Automation",
        rows=rows,
        finding=overview_finding(rows),
        plans=plan_rows(pools, now),
        several=len(pools) > 1,
        window=span(latest.window_s) if (latest := fleet_feed().latest) is not None else "seconds",
        at=moment(now, now),
    )
    return render(request, "automation/page.html", context)


@require_safe
def automation_pool(request: HttpRequest, slug: str) -> HttpResponse:
    """Show one pool, and the form that the URL names."""
    actor = console_actor(request)
    pool = shown_pool(actor, slug)
    do = asked(request, "do", 32)
    query = {name: asked(request, name, 64) for name in ("job", "action", "engine")}
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
    """Render the page of one pool; with `?fragment` only its live section. `trouble` is shown if no form is open."""
    address = reverse("automation-pool", args=[pool.slug])
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
    context["pools"] = shown_pools(actor)
    return render(request, "automation/pool.html", context, status=status)


@require_safe
def automation_timeline(request: HttpRequest, slug: str) -> HttpResponse:
    """Return the chart data as JSON; `range` is 5m, 1h, or 24h, `end` is in Unix seconds (default: now)."""
    pool = shown_pool(console_actor(request), slug)
    now = timezone.now()
    try:
        stretch = stretch_of(request.GET.get("range", "1h"), request.GET.get("end", ""), now.timestamp())
    except BadRangeError as error:
        return JsonResponse({"error": str(error)}, status=400)
    charts = automation_past(pool, stretch, fleet_feed(), now)
    return HttpResponse(msgspec.json.encode(charts), content_type="application/json")
