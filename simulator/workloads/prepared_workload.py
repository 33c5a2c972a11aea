"""A trace prepared for runs: its rows, their block keys, and each row's hits in an infinite cache."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from simulator.workloads.arrivals import Arrival, arrivals_of, heads_of_rows, keys_of_rows, prompt_tokens
from simulator.workloads.trace import BLOCK_TOKENS, TraceRow, read_trace


class Workload:
    """Rows in order of time, with keys for one seed. Created once, never changed, and replayed at many rates."""

    def __init__(self, rows: Sequence[TraceRow], *, max_input: int | None = None, seed: int = 0) -> None:
        if not rows:
            raise ValueError("a workload needs at least one request")
        self.rows = rows
        self.max_input = max_input
        self.keys = keys_of_rows(rows, seed, max_input)
        self._heads = heads_of_rows(rows, seed) if any(row.head_ids for row in rows) else []
        self.prompt_tokens = [prompt_tokens(row, max_input) for row in rows]

    @classmethod
    def read(cls, path: Path, *, requests: int | None = None, max_input: int | None = None, seed: int = 0) -> Workload:
        """Read the first `requests` rows of a trace; raise simulator.workloads.trace.TraceError."""
        return cls(read_trace(path, requests), max_input=max_input, seed=seed)

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def infinite_hits(self) -> list[int]:
        """Prompt tokens of each row that a fleet-wide cache of unlimited size would hold."""
        return infinite_cache_hits(self.keys, self.prompt_tokens)

    def infinite_hit_rate(self, warmup: int) -> float:
        """Return the share of prompt tokens after the warm-up that a fleet-wide cache of unlimited size would hold."""
        tokens = sum(self.prompt_tokens[warmup:])
        return sum(self.infinite_hits[warmup:]) / tokens if tokens else 0.0

    def arrivals(self, qps: float | None, ttft_slo_s: float) -> list[Arrival]:
        """Return the requests at a mean rate (None for the recorded times)."""
        return arrivals_of(
            self.rows, self.keys, qps=qps, ttft_slo_s=ttft_slo_s, max_input=self.max_input, heads=self._heads
        )


def infinite_cache_hits(keys: Sequence[Sequence[int]], lengths: Sequence[int]) -> list[int]:
    """Return how many of each prompt's `lengths` tokens a cache that never evicts would hold."""
    seen: set[int] = set()
    hits = []
    for prompt, tokens in zip(keys, lengths, strict=True):
        depth = 0
        for key in prompt:
            if key not in seen:
                break
            depth += 1
        seen.update(prompt)
        hits.append(min(depth * BLOCK_TOKENS, tokens))
    return hits
