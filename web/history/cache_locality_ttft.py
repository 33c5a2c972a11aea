"""Stacked bars of each engine's time to first token, split into queue, transfer, and prefill; mean and P90."""

from __future__ import annotations

from typing import Any

from controlplane.platform.format import duration
from gateway.contracts.cache_locality_sample import PoolCacheLocality, SplitMean
from web.history.cache_locality_prefixes import Link
from web.shell.chart import bars, place, ticks
from web.shell.console_request import with_query

WINDOWS = {"1": 60.0, "5": 300.0, "15": 900.0}
MAX_ROWS = 40


def ttft_picture(locality: PoolCacheLocality, window: str, link: Link) -> dict[str, Any]:
    """Return the chart for a span of WINDOWS; engines without requests in the span are omitted."""
    spans = [
        (engine, span) for engine in locality.engines for span in engine.split if abs(span.span_s - WINDOWS[window]) < 1
    ]
    spans.sort(key=lambda item: (-_total(item[1].p90), item[0].name))
    end_s = 1.04 * max([0.001, *(max(_total(span.mean), _total(span.p90)) for _, span in spans)])
    rows = [
        {
            "name": engine.name,
            "slow": with_query("/decisions", pool=locality.pool_id, engine=engine.name, late=1),
            "requests": span.requests,
            "mean": _side(span.mean, end_s),
            "p90": _side(span.p90, end_s),
        }
        for engine, span in spans[:MAX_ROWS]
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
