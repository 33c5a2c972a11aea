"""The Cache locality pages: which prompts go where in a pool, which engines hold what, and how exact the index is."""

from __future__ import annotations

import time
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from controlplane.fleet.models.pool import Pool
from controlplane.history.cache_locality.intake import PoolWord, cache_locality_intake
from controlplane.history.cache_locality.rings import engine_id_of
from controlplane.platform.format import count, span
from web.history.cache_locality_hits import hits_finding, hits_picture, pool_hits
from web.history.cache_locality_prefixes import Link, prefix_finding, prefix_picture
from web.history.cache_locality_rings import rings_picture
from web.history.cache_locality_ttft import WINDOWS, ttft_picture
from web.shell.console_request import asked, console_actor, with_query
from web.shell.frame import shell_context
from web.shell.seen_pools import seen_pool, seen_pools

DEFAULTS = {"window": "5"}


@require_safe
def cache_locality(request: HttpRequest) -> HttpResponse:
    """Show one row per pool: its placement, its hottest prefix, and how far its engines' indices are right."""
    now, hearing = time.time(), cache_locality_intake()
    rows = [_row(pool, hearing.of(pool.slug, now)) for pool in seen_pools(console_actor(request))]
    return render(request, "history/cache_locality.html", shell_context(request, page="Cache locality", rows=rows))


@require_safe
def cache_locality_pool(request: HttpRequest, slug: str) -> HttpResponse:
    """Show one pool's rings, prefixes, parts of TTFT and hits; `?fragment` the changing parts alone."""
    actor = console_actor(request)
    pool, now = seen_pool(actor, slug), time.time()
    asked_for = {name: asked(request, name, 64) for name in ("without", "prefix", "window")}
    if asked_for["window"] not in WINDOWS:
        asked_for["window"] = DEFAULTS["window"]
    word = cache_locality_intake().of(pool.slug, now)
    here = reverse("cache-locality-pool", args=[pool.slug])
    chosen = {name: value for name, value in asked_for.items() if value != DEFAULTS.get(name)}

    def link(**changes: str) -> str:
        """Return the page's address in another state: a picture changes its part of the query, and keeps the rest."""
        return with_query(here, **dict(sorted({**chosen, **changes}.items())))

    context = shell_context(
        request,
        page="Cache locality",
        pool=pool,
        word=word,
        fragment=link(fragment="1"),
        **(pool_pictures(word, asked_for, link, now) if word is not None else {}),
    )
    if "fragment" in request.GET:
        return render(request, "history/cache_locality_live.html", context)
    context["pools"] = seen_pools(actor)
    return render(request, "history/cache_locality_pool.html", context)


def pool_pictures(word: PoolWord, asked_for: dict[str, str], link: Link, now: float) -> dict[str, Any]:
    """Return the context of the page's changing parts."""
    told = word.pool
    gone = engine_id_of(told, asked_for["without"])
    rings = rings_picture(word, gone if gone in told.accepting and told.rings is not None else "", link)
    return {
        "finding": " ".join(filter(None, (hits_finding(told), prefix_finding(told), rings["finding"]))),
        "seen": f"{count(told.requests, 'request')} of the last {span(told.span_s)}"
        + (f", one in {round(told.requests / told.sampled)} sampled" if told.requests > 1.5 * told.sampled else ""),
        "rings": rings,
        "prefixes": prefix_picture(told, asked_for["prefix"], link),
        "ttft": ttft_picture(told, asked_for["window"], link),
        "hits": hits_picture(told, now),
    }


def _row(pool: Pool, word: PoolWord | None) -> dict[str, Any]:
    if word is None:
        return {"pool": pool, "told": None}
    told = word.pool
    hottest = max(
        (prefix for prefix in told.prefixes), key=lambda each_: (each_.level == 0, each_.requests), default=None
    )
    return {
        "pool": pool,
        "told": told,
        "hottest": hottest,
        "hits": pool_hits(told),
    }
