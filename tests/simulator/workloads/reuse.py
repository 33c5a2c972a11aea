"""The part of a trace that an infinite cache would hold."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.workloads.trace import BLOCK_TOKENS, TraceRow


def infinite_reuse(rows: Sequence[TraceRow]) -> tuple[float, float]:
    """Return the share of prompt tokens seen before, and of requests that share at least half their prompt."""
    seen: set[int] = set()
    hits, halves = 0, 0
    for row in rows:
        depth = next((index for index, block in enumerate(row.hash_ids) if block not in seen), len(row.hash_ids))
        seen.update(row.hash_ids)
        hit = min(depth * BLOCK_TOKENS, row.input_length)
        hits += hit
        halves += 2 * hit >= row.input_length
    return hits / sum(row.input_length for row in rows), halves / len(rows)
