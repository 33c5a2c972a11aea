"""Bounds that no routing can exceed: hit rates of idealized caches, service times without a queue, on-time shares.

Hit rates are shares of prompt tokens. Requests run one after another, each hits the blocks of earlier ones, and a
warm-up is excluded (research on scheduling §3 'Bounds').
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from bench.evidence.belady_leaves import next_uses
from simulator.engine_cache.prefix_cache import PrefixCache
from simulator.engine_models.engine_profile import EngineProfile
from simulator.percentile import percentile
from simulator.workloads.trace import BLOCK_TOKENS


def lru_cache_hits(keys: Sequence[Sequence[int]], prompt_tokens: Sequence[int], blocks: int) -> list[int]:
    """Return each prompt's hit tokens in one leaf-LRU cache of `blocks` blocks shared by all engines."""
    cache = PrefixCache(blocks)
    hits = []
    for prompt, tokens in zip(keys, prompt_tokens, strict=True):
        hits.append(min(cache.match(prompt) * BLOCK_TOKENS, tokens))
        cache.insert(prompt)
    return hits


def belady_cache_hits(keys: Sequence[Sequence[int]], prompt_tokens: Sequence[int], blocks: int) -> list[int]:
    """Return each prompt's hit tokens in a shared cache that evicts the block needed last (Belady).

    A child is never needed sooner than its parent, so evicting the block needed last, and the deepest among equals,
    keeps prefixes whole. A block that is needed later than all held ones is not inserted.
    """
    uses = next_uses(keys)
    held: dict[int, tuple[int, int]] = {}
    farthest: list[tuple[int, int, int]] = []
    hits = []
    for number, (prompt, tokens) in enumerate(zip(keys, prompt_tokens, strict=True)):
        depth = 0
        for key in prompt:
            if key not in held:
                break
            depth += 1
        hits.append(min(depth * BLOCK_TOKENS, tokens))
        for position, key in enumerate(prompt):
            needed = uses[number][position]
            held[key] = (needed, position)
            heappush(farthest, (-needed, -position, key))
        while len(held) > blocks:
            needed, position, key = heappop(farthest)
            # Entries of earlier uses of the block are outdated.
            if held.get(key) == (-needed, -position):
                del held[key]
    return hits


def hit_rate(hits: Sequence[int], prompt_tokens: Sequence[int], warmup: int) -> float:
    """Return the hit share of the prompt tokens after the warm-up."""
    tokens = sum(prompt_tokens[warmup:])
    return sum(hits[warmup:]) / tokens if tokens else 0.0


def service_seconds(
    profile: EngineProfile, hits: Sequence[int], prompt_tokens: Sequence[int], warmup: int
) -> list[float]:
    """Return the prefill time of each request after the warm-up without waiting: a lower bound of its TTFT."""
    return [profile.prefill_s(tokens, hit) for tokens, hit in zip(prompt_tokens[warmup:], hits[warmup:], strict=True)]


def service_percentiles(seconds: Sequence[float]) -> tuple[float, float]:
    """Return the 50th and 90th percentile."""
    ordered = sorted(seconds)
    return percentile(ordered, 50) or 0.0, percentile(ordered, 90) or 0.0


def on_time_bound(seconds: Sequence[float], engines: int, span_s: float, slo_s: float) -> float:
    """Return a strict upper bound on the share of requests on time.

    The prefill of an on-time request ends within `span_s` (first to last arrival) plus one SLO, so all such prefills
    fit into `engines` times that. The bound assumes the cheapest requests, because the most of them fit.
    """
    room = engines * (span_s + slo_s)
    kept = 0
    for second in sorted(seconds):
        room -= second
        # A prefill longer than the SLO is late even without a wait.
        if room < 0 or second > slo_s:
            break
        kept += 1
    return kept / len(seconds) if seconds else 1.0
