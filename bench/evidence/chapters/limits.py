"""Chapter: what no rule can pass."""

from __future__ import annotations

from bench.evidence.measure.limits import LOADS
from bench.evidence.store import load


def text() -> str:
    """Return the chapter."""
    result = load("limits")
    lines = [
        "| shared cache, tokens | conversation LRU | Belady | tool & agent LRU | Belady |",
        "|---|---:|---:|---:|---:|",
    ]
    for cache in ("4M", "8M", "16M"):
        cells = [
            f"{100 * result.number('hit_rate', trace=trace, cache=cache, eviction=eviction):.1f} %"
            for trace in ("conversation", "toolagent_like")
            for eviction in ("lru", "belady")
        ]
        lines.append(f"| {cache} | " + " | ".join(cells) + " |")
    infinite = [f"{100 * result.number('hit_rate', trace=t, cache='infinite'):.1f} %" for t in LOADS]
    lines.append(f"| infinite | {infinite[0]} | | {infinite[1]} | |")
    bounds = [
        f"{100 * result.number('share', trace=trace, kind='on_time', qps=float(qps)):.1f} % at {qps} requests/s"
        for trace in ("conversation",)
        for qps in LOADS[trace]
    ]
    service = [
        f"{result.number('p50_s', trace=t, kind='service'):.2f} / {result.number('p90_s', trace=t, kind='service'):.2f} s"
        for t in LOADS
    ]
    return f"""## Limits

Hit tokens as a share of all prompt tokens, were all caches one:

{chr(10).join(lines)}

Eight engines hold 8 M tokens: from there on more memory or a better eviction rule could win a few points, better routing
cannot. With that cache and no queue at all a first token takes {service[0]} (median / 90th percentile, conversation) and
{service[1]} (tool & agent). At most {", ".join(bounds)} of the conversation's requests could be on time, were the cheapest
kept and the cache infinite.
"""
