"""Bounds that no rule can exceed: idealized caches, a pooled server, service without a queue."""

from __future__ import annotations

from bench.evidence.bounds import (
    belady_cache_hits,
    hit_rate,
    lru_cache_hits,
    on_time_bound,
    service_percentiles,
    service_seconds,
)
from bench.evidence.cells import ENGINES, SLO_TTFT_S, settings
from bench.evidence.store import Result, Row, measured
from bench.evidence.traces import WARMUP, workload
from simulator.engine_models.engine_profile import EngineProfile

CACHES = {"4M": 4, "8M": 8, "16M": 16}
LOADS = {"conversation": (14, 16, 20), "toolagent_like": (24, 30, 36)}


def limits_of(trace: str) -> list[Row]:
    """Return the hit rates, service times and on-time bounds of one trace."""
    rows, profile = workload(trace), EngineProfile()
    keys, tokens = rows.keys, rows.prompt_tokens
    made: list[Row] = [_hits(trace, "infinite", "any", rows.infinite_hit_rate(WARMUP))]
    for name, times in CACHES.items():
        blocks = profile.num_blocks * times
        made.append(_hits(trace, name, "lru", hit_rate(lru_cache_hits(keys, tokens, blocks), tokens, WARMUP)))
        made.append(_hits(trace, name, "belady", hit_rate(belady_cache_hits(keys, tokens, blocks), tokens, WARMUP)))
    pooled = lru_cache_hits(keys, tokens, profile.num_blocks * ENGINES)
    p50, p90 = service_percentiles(service_seconds(profile, pooled, tokens, WARMUP))
    made.append({"trace": trace, "kind": "service", "p50_s": p50, "p90_s": p90})
    seconds = service_seconds(profile, rows.infinite_hits, tokens, WARMUP)
    for qps in LOADS[trace]:
        span_s = len(seconds) / qps
        share = on_time_bound(seconds, ENGINES, span_s, SLO_TTFT_S)
        made.append({"trace": trace, "kind": "on_time", "qps": float(qps), "share": share})
    return made


def measure(jobs: int) -> Result:
    """Compute all limits."""
    return measured(
        name="limits",
        settings=settings(),
        rows=[row for trace in LOADS for row in limits_of(trace)],
    )


def _hits(trace: str, cache: str, eviction: str, rate: float) -> Row:
    return {"trace": trace, "kind": "hits", "cache": cache, "eviction": eviction, "hit_rate": rate}
