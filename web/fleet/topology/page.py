"""The Engines page: regions, pools, and engines, and the drawer that controls one of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from controlplane.fleet.discovery.job import discovery_problems
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.pool_problems import with_shared_caches
from controlplane.fleet.visibility import visible_pools
from controlplane.platform.actor import Actor
from controlplane.platform.format import clock_time, count, span, zone_name
from controlplane.platform.role import Role
from controlplane.platform.roles import may
from gateway.contracts.fleet_sample import STATES, TAKING_WORK, FleetSample
from web.fleet.block_sizes import seen_block_size_problems
from web.fleet.topology.connect_form import connect_drawer
from web.fleet.topology.drains import drain_watch
from web.fleet.topology.drawer import FRESH_S, engine_drawer
from web.fleet.topology.form import register_drawer
from web.fleet.topology.new_pool_form import new_pool_drawer
from web.fleet.topology.pool import pool_drawer, shown_pool
from web.fleet.topology.rows import TopologyRows, topology_rows
from web.fleet.topology.scope import NOT_SERVING, SORTS, TopologyScope
from web.fleet.topology.words import SEVERITY, STATE_PHRASES, STATE_WORDS
from web.live.feed import fleet_feed
from web.shell.console_request import console_actor
from web.shell.frame import shell_context

NOTE = "topology_note"
"""Session key of the sentence that the page shows after a change."""

ADMINS_DRAWERS = {"connect": connect_drawer, "pool": new_pool_drawer}
POOL_GONE = "That pool was deleted, or you cannot see it."
GONE = "That engine was deleted, has another id, or is in a pool that you cannot see."


@require_safe
def topology(request: HttpRequest) -> HttpResponse:
    """Show the table, and the drawer that the URL names."""
    actor = console_actor(request)
    pools = topology_pools(actor)
    do, engine_id = request.GET.get("do", ""), request.GET.get("engine", "")
    drawer: dict[str, Any] | None = None
    note = request.session.pop(NOTE, "")
    gone = False
    if engine_id:
        engine = shown_engine(engine_id, pools)
        if engine is None:
            gone, note = True, GONE
        else:
            drawer = engine_drawer(engine, fleet_feed().latest, actor, pools, do)
    elif slug := request.GET.get("settings", ""):
        pool = shown_pool(slug, pools)
        gone, note = pool is None, note if pool else POOL_GONE
        drawer = pool_drawer(pool, actor) if pool else None
    elif do in ADMINS_DRAWERS and may(actor, Role.ADMIN):
        drawer = ADMINS_DRAWERS[do]()
    elif do == "register" and (changeable := changeable_pools(actor, pools)):
        drawer = register_drawer(changeable, request.GET.get("pool", ""))
    return topology_page(request, actor, pools, drawer=drawer, note=note, trouble=gone)


def topology_page(
    request: HttpRequest,
    actor: Actor,
    pools: Sequence[Pool],
    *,
    drawer: dict[str, Any] | None = None,
    note: str = "",
    trouble: bool = False,
    status: int = 200,
) -> HttpResponse:
    """Render the page; `drawer` is shown on the right. `note` is a sentence above the table; `trouble` marks it as a
    problem.
    """
    # From the first page on: a countdown that is opened later needs a history for its estimate.
    drain_watch()
    now = time.time()
    scope = TopologyScope.of(request.GET)
    sample = fleet_feed().latest
    rows = topology_rows(pools, scope, sample, now)
    context = shell_context(
        request,
        page="Engines",
        tab="engines",
        scope=scope,
        rows=rows,
        finding=finding(rows),
        summary=summary(pools, rows, sample),
        stale=stale_words(sample, now),
        pools=pools,
        shared_caches=with_shared_caches(pools),
        changeable=changeable_pools(actor, pools),
        states=[(NOT_SERVING, "Not serving"), *((state, STATE_WORDS[state]) for state in STATES)],
        headers=headers(scope),
        pager=pager(rows, scope),
        drawer=drawer,
        note=note,
        note_is_trouble=trouble or status >= 400,
        close_address=scope.address(),
        here_address=_here(scope, drawer),
        engine_prefix=scope.address(engine=""),
        pool_prefix=scope.address(settings=""),
        register_address=scope.address(do="register"),
        may_create=may(actor, Role.ADMIN),
        connect_address=scope.address(do="connect"),
        new_pool_address=scope.address(do="pool"),
        discovery_problems=discovery_problems({pool.slug for pool in pools}),
        block_problems=seen_block_size_problems(pools, sample),
    )
    return render(request, "fleet/topology/page.html", context, status=status)


def _here(scope: TopologyScope, drawer: dict[str, Any] | None) -> str:
    """Return the URL of this view without the rejected form."""
    if drawer and drawer["kind"] == "pool":
        return scope.address(settings=drawer["pool"].slug)
    engine = drawer.get("engine") if drawer and drawer["kind"] == "engine" else None
    return scope.address(engine=engine.engine_id) if engine else scope.address()


def topology_pools(actor: Actor) -> list[Pool]:
    """Return the pools that the person can see, by region and name."""
    return list(visible_pools(actor).select_related("region").order_by("region__slug", "slug"))


def changeable_pools(actor: Actor, pools: Sequence[Pool]) -> list[Pool]:
    """Return the pools in which the person can register and move engines."""
    return [pool for pool in pools if may(actor, Role.OPERATOR, pool)]


def shown_engine(engine_id: str, pools: Sequence[Pool]) -> Engine | None:
    """Return the engine if it exists in a pool that the person can see."""
    engines = Engine.objects.select_related("pool__region", "health")
    return engines.filter(engine_id=engine_id[:64], pool__in=[pool.pk for pool in pools]).first()


def finding(rows: TopologyRows) -> str:
    """Return the page's title, which states the most notable fact about all engines."""
    if not rows.total:
        return "No engines yet"
    if len(rows.silent_s) == rows.total:
        return f"No reports for {span(min(rows.silent_s))}: figures are old"
    troubled = [f"{rows.states[state]:,} {STATE_PHRASES[state]}" for state in SEVERITY[:-1] if rows.states[state]]
    troubled += [f"{len(rows.silent_s):,} without reports"] if rows.silent_s else []
    if not troubled:
        return f"All {count(rows.total, 'engine')} serve" if rows.total > 1 else "The only engine serves"
    working = sum(rows.states[state] for state in TAKING_WORK)
    return f"{working:,} of {count(rows.total, 'engine')} serve; {', '.join(troubled)}"


def summary(pools: Sequence[Pool], rows: TopologyRows, sample: FleetSample | None) -> str:
    """Return the number of engines and pools, and the snapshot that the gateway uses."""
    regions = len({pool.region_id for pool in pools})
    parts = (count(rows.total, "engine"), count(len(pools), "pool"), *([count(regions, "region")] if regions else ()))
    if sample is None:
        return f"{', '.join(parts)}. The gateway has not published a fleet sample."
    return f"{', '.join(parts)}; snapshot v{sample.snapshot_version}, seen at {clock_time(sample.at)} {zone_name()}."


def stale_words(sample: FleetSample | None, now: float) -> str:
    """Return a warning if the sample is old, else an empty text."""
    if sample is None or now - sample.at <= FRESH_S:
        return ""
    return (
        f"The gateway has not reported for {span(now - sample.at)}; states and loads are from "
        f"{clock_time(sample.at)} {zone_name()}. Changes are stored and take effect when it is back."
    )


def headers(scope: TopologyScope) -> dict[str, dict[str, Any]]:
    """Return the column headers with the URLs that sort by them."""
    return {
        sort: {"address": scope.sorted_by(sort).address(), "current": scope.sort == sort, "label": label}
        for sort, label in SORTS.items()
    }


def pager(rows: TopologyRows, scope: TopologyScope) -> dict[str, Any]:
    """Return the footer: which engines of how many are shown, and links to the previous and next page."""
    page = min(scope.page, rows.pages)
    return {
        "text": f"{rows.first:,}–{rows.last:,} of {rows.matching:,}" if rows.matching else "",
        "before": scope.on_page(page - 1).address() if page > 1 else "",
        "after": scope.on_page(page + 1).address() if page < rows.pages else "",
        "many": rows.pages > 1,
    }
