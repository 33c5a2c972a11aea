"""Time to first token by part, and predicted against reported cache hits with the resulting trust, per engine."""

from __future__ import annotations

import math
from typing import Any

from controlplane.platform.format import count, duration, percent, short, span
from gateway.contracts.cache_locality_sample import EngineCacheLocality, PoolCacheLocality, SplitMean
from gateway.pools.engines.hit_words import CAUSE_TITLES
from web.history.cache_locality_prefixes import Link
from web.shell.chart import bars, place, ticks, x, y
from web.shell.console_request import with_query

WINDOWS = {"1": 60.0, "5": 300.0, "15": 900.0}
MAX_ROWS = 40


def ttft_picture(locality: PoolCacheLocality, window: str, link: Link) -> dict[str, Any]:
    """Return the chart for a span of WINDOWS; engines without requests in the span are omitted."""
    spans = [
        (engine, split)
        for engine in locality.engines
        for split in engine.split
        if abs(split.span_s - WINDOWS[window]) < 1
    ]
    spans.sort(key=lambda item: (-_total(item[1].p90), item[0].name))
    end_s = 1.04 * max([0.001, *(max(_total(split.mean), _total(split.p90)) for _, split in spans)])
    rows = [
        {
            "name": engine.name,
            "slow": with_query("/requests", pool=locality.pool_id, engine=engine.name, late=1),
            "requests": split.requests,
            "mean": _side(split.mean, end_s),
            "p90": _side(split.p90, end_s),
        }
        for engine, split in spans[:MAX_ROWS]
    ]
    return {
        # Words, address, and whether it is shown.
        "windows": [(f"{item} min", link(window=item), item == window) for item in WINDOWS],
        "rows": rows,
        "left_out": len(spans) - len(rows),
        "ticks": [(place(100 * tick / end_s), duration(tick) if tick else "0") for tick in ticks(end_s)],
        "summary": "; ".join(
            f"{row['name']} mean {duration(row['mean']['total_s'])}, p90 {duration(row['p90']['total_s'])}"
            for row in rows[:8]
        ),
    }


def _side(parts: SplitMean, end_s: float) -> dict[str, Any]:
    terms = (("queue", parts.queue_s), ("transfer", parts.transfer_s), ("prefill", parts.prefill_s))
    total_s = _total(parts)
    return {"bars": bars(terms, end_s), "total_s": total_s, "cells": [*(length for _, length in terms), total_s]}


def _total(parts: SplitMean) -> float:
    return parts.queue_s + parts.transfer_s + parts.prefill_s


MAX_TWIN = 60
_TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)
_TRUSTS = {"exact": "Exact", "degraded": "Degraded", "blind": "Blind"}


def hits_picture(locality: PoolCacheLocality, now: float) -> dict[str, Any]:
    """Return the content of the panels; `now` is in Unix seconds."""
    points = [(engine, point) for engine in locality.engines for point in engine.points]
    top = max([locality.block_tokens, *(max(point.believed_tokens, point.reported_tokens) for _, point in points)])
    points.sort(key=lambda item: (item[1].age_s, item[0].name))
    differing = sum(point.differs for _, point in points)
    return {
        "pool": pool_hits(locality),
        "rows": [_row(locality, engine, now) for engine in locality.engines if engine.compared or engine.accepts],
        "dots": [
            (place(x(_root(point.believed_tokens, top))), place(y(_root(point.reported_tokens, top))), point.differs)
            for _, point in sorted(points, key=lambda item: item[1].differs)
        ],
        # Ends of the line on which reported equals predicted.
        "begin": (place(x(0)), place(y(0))),
        "end": (place(x(1)), place(y(1))),
        "x_ticks": [(place(x(item)), short(round(item * item * top))) for item in _TICKS],
        "y_ticks": [(place(y(item)), short(round(item * item * top))) for item in _TICKS],
        "twin": [(engine, point, point.reported_tokens - point.believed_tokens) for engine, point in points[:MAX_TWIN]],
        "summary": f"{count(len(points), 'request')}, predicted against reported cached tokens; {differing} differing",
    }


def pool_hits(locality: PoolCacheLocality) -> dict[str, Any]:
    """Return the pool's predicted and reported tokens, and the engines whose index has reduced trust."""
    sums = ("compared", "differing", "believed_tokens", "reported_tokens")
    return {
        **{name: sum(getattr(engine, name) for engine in locality.engines) for name in sums},
        "doubted": sum(engine.trust not in ("exact", "") for engine in locality.engines),
        "causes": sorted({CAUSE_TITLES.get(engine.cause, engine.cause) for engine in locality.engines if engine.cause}),
    }


def _row(locality: PoolCacheLocality, engine: EngineCacheLocality, now: float) -> dict[str, Any]:
    return {
        "engine": engine,
        "trust": _TRUSTS.get(engine.trust, "Unknown"),
        "cause": CAUSE_TITLES.get(engine.cause, engine.cause),
        "since": f"{span(now - engine.trust_since)} ago" if engine.trust_since is not None else "the gateway started",
        "link": with_query("/requests", pool=locality.pool_id, engine=engine.name, mismatch=engine.cause),
    }


def hits_finding(locality: PoolCacheLocality) -> str:
    """Return what the hits reveal about an index. An index built from our own dispatches is approximate by design."""
    doubted = [engine for engine in locality.engines if engine.cause and engine.trust != "exact"]
    if not doubted:
        return ""
    worst = min(doubted, key=lambda item: (item.share if item.share is not None else 1.0, item.name))
    cause = CAUSE_TITLES.get(worst.cause, worst.cause)
    share = f", {percent(worst.share)} of the prediction" if worst.share is not None else ""
    return f"The index of {worst.name} is {worst.trust}{share}: {cause}."


def _root(tokens: int, top: int) -> float:
    """Return the position on a square-root scale, which keeps short hits visible next to long ones."""
    return math.sqrt(max(0, tokens) / top)
