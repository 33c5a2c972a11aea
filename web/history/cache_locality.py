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
from controlplane.platform.format import UNKNOWN, count, percent, roughly, short, span
from gateway.contracts.cache_locality_sample import PoolCacheLocality
from gateway.contracts.fleet_sample import EngineSample, PoolSample
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
FULL, HOT = 0.95, 0.1
"""Used share of KV memory that counts as full, and share of requests with a prefix that should be on two engines."""
DEFAULTS = {"window": "5"}


@require_safe
def cache_locality(request: HttpRequest) -> HttpResponse:
    """Show what the cache saves and how full it is, by pool and engine, and the prefixes that most requests share."""
    now, intake = time.time(), cache_locality_intake()
    sample = fleet_feed().latest
    measured = {pool.pool_id: pool for pool in sample.pools} if sample is not None and now - sample.at < FRESH_S else {}
    of_pool: dict[str, list[EngineSample]] = {}
    for engine in sample.engines if sample is not None and measured else ():
        of_pool.setdefault(engine.pool_id, []).append(engine)
    pools = shown_pools(console_actor(request))
    rows = [
        _row(pool, intake.of(pool.slug, now), measured.get(pool.slug), of_pool.get(pool.slug, [])) for pool in pools
    ]
    context = shell_context(
        request,
        page="Cache",
        tab="locality",
        rows=rows,
        totals=_totals(rows),
        window=span(sample.window_s) if sample is not None and measured else "",
        judged=roughly(max((row["locality"].span_s for row in rows if row["locality"] is not None), default=0)),
        prefixes=_hot(rows),
    )
    return render(request, "history/cache_locality.html", context)


def _totals(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of all pools: the hit share, tokens per second by source, and the accuracy of predictions."""
    samples = [row["sample"] for row in rows if row["sample"] is not None and row["sample"].hit_share is not None]
    prompt = sum(sample.prompt_tokens_per_s for sample in samples)
    cached = sum(sample.prompt_tokens_per_s * sample.hit_share for sample in samples)
    hits = [row["hits"] for row in rows if row["locality"] is not None]
    share = cached / prompt if prompt else None
    saved = sum(item.prompt_tokens_per_s * item.hit_share / item.tokens_per_s for item in samples if item.tokens_per_s)
    sources = (short(cached), short(prompt - cached)) if samples else (UNKNOWN, UNKNOWN)
    totals: dict[str, Any] = {"cached": sources[0], "computed": sources[1], "saved": saved if samples else None}
    for name in ("compared", "differing", "believed_tokens", "reported_tokens", "doubted"):
        totals[name] = sum(item[name] for item in hits)
    finding = "No prompt tokens in the last seconds" if share is None else f"{percent(share)} of prompt tokens cached"
    if totals["doubted"]:
        finding += f"; the index of {count(totals['doubted'], 'engine')} is inexact"
    memory = _memory([engine for row in rows for engine in row["engines"]])
    return {**totals, **memory, "share": share, "finding": finding}


def _hot(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the longest shared prefixes of each pool, the most frequent first."""
    return [
        {
            "pool": row["pool"],
            "prefix": prefix,
            "share": prefix.requests / row["locality"].requests if row["locality"].requests else None,
            "copies": len({*prefix.dram_nodes, *prefix.ssd_nodes}),
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


def _row(
    pool: Pool, report: PoolCacheReport | None, measured: PoolSample | None, engines: Sequence[EngineSample]
) -> dict[str, Any]:
    row = {"pool": pool, "sample": measured, "engines": engines, "memory": _memory(engines)["memory"]}
    if report is None:
        return {**row, "locality": None}
    hits = pool_hits(report.pool)
    return {**row, "locality": report.pool, "hits": hits, "advice": _advice(pool, report.pool, hits, row["memory"])}


def _memory(engines: Sequence[EngineSample]) -> dict[str, Any]:
    """Return the mean use of the engines' KV memory, and the blocks evicted since gateways follow their events."""
    used = [engine.kv_usage for engine in engines if engine.kv_usage is not None]
    evicted = [engine.faults.evictions for engine in engines if engine.faults and engine.faults.evictions is not None]
    return {
        "memory": sum(used) / len(used) if used else None,
        "full": sum(share >= FULL for share in used),
        "measured": len(used),
        "evicted": sum(evicted) if evicted else None,
    }


def _advice(
    pool: Pool, locality: PoolCacheLocality, hits: dict[str, Any], memory: float | None
) -> tuple[str, str, str]:
    """Return what to do about the worst finding: a sentence, and the words and the address of a link."""
    here = reverse("cache-pool", args=[pool.slug])
    top = max(locality.prefixes, key=lambda item: item.requests, default=None)
    share = top.requests / locality.requests if top is not None and locality.requests else 0.0
    if hits["doubted"]:
        doubted = count(hits["doubted"], "engine")
        return f"Hits of {doubted} differ from the index: check that its block size and events match.", "Hits", here
    if top is not None and share >= HOT and len(top.holders) < 2 and len(locality.accepting) > 1:
        link = reverse("automation-pool", args=[pool.slug])
        return f"{percent(share)} of requests share a prefix that one engine holds: spread it.", "Rebalancing", link
    if memory is not None and memory >= FULL:
        return (
            "KV memory is full, so prefixes are evicted: add engines or KV nodes.",
            "KV store",
            reverse("cache-store"),
        )
    return "Nothing to do.", "", ""
