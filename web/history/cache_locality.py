"""The Cache locality pages: where a pool sends prompts, what engines cache, and how exact the index is."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from controlplane.fleet.models.pool import Pool
from controlplane.history.cache_locality.intake import PoolCacheReport, cache_locality_intake
from controlplane.history.cache_locality.rings import engine_id_of
from controlplane.platform.format import UNKNOWN, count, percent, short, span
from web.fleet.topology.drawer import FRESH_S
from web.history.cache_locality_hits import WINDOWS, hits_finding, hits_picture, pool_hits, ttft_picture
from web.history.cache_locality_prefixes import Link, prefix_finding, prefix_picture
from web.history.cache_locality_rings import rings_picture
from web.live.feed import fleet_feed
from web.shell.console_request import asked, console_actor, with_query
from web.shell.frame import shell_context
from web.shell.shown_pools import shown_pool, shown_pools

SHOWN_PREFIXES = 5
"""Prefixes per pool on the overview."""
DEFAULTS = {"window": "5"}


@require_safe
def cache_locality(request: HttpRequest) -> HttpResponse:
    """Show how much of the prompts is cached, one row per pool, and the prefixes that most requests share."""
    now, intake = time.time(), cache_locality_intake()
    sample = fleet_feed().latest
    measured = {pool.pool_id: pool for pool in sample.pools} if sample is not None and now - sample.at < FRESH_S else {}
    rows = [
        {**_row(pool, intake.of(pool.slug, now)), "sample": measured.get(pool.slug)}
        for pool in shown_pools(console_actor(request))
    ]
    context = shell_context(request, page="Cache", tab="locality", rows=rows, totals=_totals(rows), prefixes=_hot(rows))
    return render(request, "history/cache_locality.html", context)


def _totals(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of all pools: the hit share, tokens per second by source, and the accuracy of predictions."""
    samples = [row["sample"] for row in rows if row["sample"] is not None and row["sample"].hit_share is not None]
    prompt = sum(sample.prompt_tokens_per_s for sample in samples)
    cached = sum(sample.prompt_tokens_per_s * sample.hit_share for sample in samples)
    hits = [row["hits"] for row in rows if row["locality"] is not None]
    share = cached / prompt if prompt else None
    sources = (short(cached), short(prompt - cached)) if samples else (UNKNOWN, UNKNOWN)
    totals: dict[str, Any] = {"cached": sources[0], "computed": sources[1]}
    for name in ("compared", "differing", "believed_tokens", "reported_tokens", "doubted"):
        totals[name] = sum(item[name] for item in hits)
    finding = "No prompt tokens in the last seconds" if share is None else f"{percent(share)} of prompt tokens cached"
    if totals["doubted"]:
        finding += f"; the index of {count(totals['doubted'], 'engine')} is inexact"
    return {**totals, "share": share, "finding": finding}


def _hot(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the longest shared prefixes of each pool, the most frequent first."""
    return [
        {
            "pool": row["pool"],
            "prefix": prefix,
            "share": prefix.requests / row["locality"].requests if row["locality"].requests else None,
            "tokens": prefix.last_block * row["locality"].block_tokens,
            "address": with_query(reverse("cache-pool", args=[row["pool"].slug]), prefix=prefix.key),
        }
        for row in rows
        if row["locality"] is not None
        for prefix in sorted(row["locality"].prefixes, key=lambda item: (-item.requests, item.level))[:SHOWN_PREFIXES]
    ]


@require_safe
def cache_locality_pool(request: HttpRequest, slug: str) -> HttpResponse:
    """Show one pool's rings, prefixes, TTFT parts, and hits; with `?fragment` only the live section."""
    actor = console_actor(request)
    pool, now = shown_pool(actor, slug), time.time()
    asked_for = {name: asked(request, name, 64) for name in ("without", "prefix", "window")}
    if asked_for["window"] not in WINDOWS:
        asked_for["window"] = DEFAULTS["window"]
    report = cache_locality_intake().of(pool.slug, now)
    here = reverse("cache-pool", args=[pool.slug])
    chosen = {name: value for name, value in asked_for.items() if value != DEFAULTS.get(name)}

    def link(**changes: str) -> str:
        """Return the page's URL with some query parameters changed."""
        return with_query(here, **dict(sorted({**chosen, **changes}.items())))

    context = shell_context(
        request,
        page="Cache",
        pool=pool,
        report=report,
        fragment=link(fragment="1"),
        **(pool_pictures(report, asked_for, link, now) if report is not None else {}),
    )
    if "fragment" in request.GET:
        return render(request, "history/cache_locality_live.html", context)
    context["pools"] = shown_pools(actor)
    return render(request, "history/cache_locality_pool.html", context)


def pool_pictures(report: PoolCacheReport, asked_for: dict[str, str], link: Link, now: float) -> dict[str, Any]:
    """Return the template context for the page's live section."""
    locality = report.pool
    gone = engine_id_of(locality, asked_for["without"])
    rings = rings_picture(report, gone if gone in locality.accepting and locality.rings is not None else "", link)
    return {
        "finding": " ".join(filter(None, (hits_finding(locality), prefix_finding(locality), rings["finding"]))),
        "seen": f"{count(locality.requests, 'request')} of the last {span(locality.span_s)}"
        + (
            f", one in {round(locality.requests / locality.sampled)} sampled"
            if locality.requests > 1.5 * locality.sampled
            else ""
        ),
        "rings": rings,
        "prefixes": prefix_picture(locality, asked_for["prefix"], link),
        "ttft": ttft_picture(locality, asked_for["window"], link),
        "hits": hits_picture(locality, now),
    }


def _row(pool: Pool, report: PoolCacheReport | None) -> dict[str, Any]:
    if report is None:
        return {"pool": pool, "locality": None}
    return {"pool": pool, "locality": report.pool, "hits": pool_hits(report.pool)}
