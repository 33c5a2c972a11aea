"""What happened to the requests of the last seconds: rates, TTFT percentiles, shares on time and cached."""

from __future__ import annotations

from collections import deque

import msgspec

COMPLETED = "completed"
FAILED = "failed"
REJECTED = "refused"
CANCELLED = "cancelled"
TTFT_POINTS = 64
"""Ranks are told to 1/128 of all."""


class RequestResult(msgspec.Struct, frozen=True, gc=False):
    """How one request ended, as far as the gateway saw it."""

    at_s: float
    """Monotonic seconds."""
    ttft_s: float | None
    prompt_tokens: int
    cached_tokens: int | None
    """As the engine reports it; None: it does not."""
    on_time: bool
    outcome: str
    """completed, failed, refused or cancelled; cancelled ones are neither on time nor late."""
    predicted_tokens: int = 0
    """Cached tokens as the decision expected them."""


class TrafficSummary(msgspec.Struct, frozen=True, gc=False):
    """The window at one moment; shares 0..1, times in seconds, None: no request to tell from."""

    requests_per_s: float
    prompt_tokens_per_s: float
    ttft_p50_s: float | None
    ttft_p90_s: float | None
    ttft_p99_s: float | None
    on_time_share: float | None
    hit_share: float | None
    late: int
    judged: int
    """Requests that were on time or late."""
    ttft_count: int
    ttft_points: tuple[float, ...]
    """TTFTs in order: all, or TTFT_POINTS evenly spread by rank."""


class TrafficWindow:
    """Results of the last `window_s` seconds, at most `max_results`; totals per engine since the start.

    Mutable state: `_results` in order of arrival, `_ttfts` of those that have one, the sums over them, and
    `_totals`. Sums are kept as results come and go, since thousands may stand in a window that is looked at
    twice a second. Where the limit cuts the window short, rates are taken over the time that is left in it.
    """

    def __init__(self, window_s: float = 15.0, max_results: int = 16_384) -> None:
        self.window_s = window_s
        self._max_results = max_results
        self._results: deque[RequestResult] = deque()
        self._ttfts: deque[float] = deque()
        self._prompt_tokens = self._judged = self._punctual = 0
        self._told_prompt = self._told_cached = 0
        self._totals: dict[str, tuple[int, int, int]] = {}
        self._first_s: float | None = None
        self.requests = 0
        """Since the start, as the two below; cancelled ones are left out."""
        self.on_time = 0
        self.refused = 0

    def __len__(self) -> int:
        return len(self._results)

    def add(self, result: RequestResult, engine_id: str | None) -> None:
        """Count one request, and its tokens for the engine that served it (None: none did)."""
        if self._first_s is None:
            self._first_s = result.at_s
        self._results.append(result)
        self._count(result, 1)
        if result.ttft_s is not None:
            self._ttfts.append(result.ttft_s)
        if len(self._results) > self._max_results:
            self._drop_oldest()
        if result.outcome != CANCELLED:
            self.requests += 1
            self.on_time += result.on_time
            self.refused += result.outcome == REJECTED
        if engine_id is not None and result.outcome == COMPLETED:
            prompt, cached, predicted = self._totals.get(engine_id, (0, 0, 0))
            self._totals[engine_id] = (
                prompt + result.prompt_tokens,
                cached + (result.cached_tokens or 0),
                predicted + result.predicted_tokens,
            )

    def totals(self, engine_id: str) -> tuple[int, int]:
        """Return (prompt tokens, cached tokens) of the engine's completed requests since the start."""
        return self._totals.get(engine_id, (0, 0, 0))[:2]

    def predicted(self, engine_id: str) -> int:
        """Return the cached tokens that the decisions on the same requests expected."""
        return self._totals.get(engine_id, (0, 0, 0))[2]

    def forget(self, engine_id: str) -> None:
        """Drop the totals of an engine that left the topology."""
        self._totals.pop(engine_id, None)

    def summary(self, now: float) -> TrafficSummary:
        """Drop what is older than the window and return the figures of the rest."""
        results = self._results
        while results and results[0].at_s < now - self.window_s:
            self._drop_oldest()
        span_s = self._span_s(now)
        ttfts = sorted(self._ttfts)
        return TrafficSummary(
            requests_per_s=len(results) / span_s,
            prompt_tokens_per_s=self._prompt_tokens / span_s,
            ttft_p50_s=_percentile(ttfts, 0.50),
            ttft_p90_s=_percentile(ttfts, 0.90),
            ttft_p99_s=_percentile(ttfts, 0.99),
            on_time_share=self._punctual / self._judged if self._judged else None,
            hit_share=self._told_cached / self._told_prompt if self._told_prompt else None,
            late=self._judged - self._punctual,
            judged=self._judged,
            ttft_count=len(ttfts),
            ttft_points=_points(ttfts),
        )

    def _drop_oldest(self) -> None:
        oldest = self._results.popleft()
        self._count(oldest, -1)
        if oldest.ttft_s is not None:
            self._ttfts.popleft()

    def _count(self, result: RequestResult, sign: int) -> None:
        """Add a result to the sums of the window (sign 1) or take it out (-1)."""
        self._prompt_tokens += sign * result.prompt_tokens
        if result.outcome != CANCELLED:
            self._judged += sign
            self._punctual += sign * result.on_time
        if result.cached_tokens is not None:
            self._told_prompt += sign * result.prompt_tokens
            self._told_cached += sign * result.cached_tokens

    def _span_s(self, now: float) -> float:
        """Return the seconds the results cover: less than the window at the start and at the limit, at least 1."""
        results = self._results
        since = self._first_s if self._first_s is not None else now
        if len(results) == self._max_results:
            since = results[0].at_s
        return max(1.0, min(self.window_s, now - since))

    def check(self) -> None:
        """Raise AssertionError unless the sums are those of the results in the window."""
        fresh = TrafficWindow(self.window_s, self._max_results)
        for result in self._results:
            fresh.add(result, None)
        for name in ("_ttfts", "_prompt_tokens", "_judged", "_punctual", "_told_prompt", "_told_cached"):
            if getattr(fresh, name) != getattr(self, name):
                raise AssertionError(f"{name} is not that of the {len(self._results)} results in the window")


def _points(ordered: list[float]) -> tuple[float, ...]:
    count = len(ordered)
    if count <= TTFT_POINTS:
        return tuple(ordered)
    return tuple([ordered[(2 * place + 1) * count // (2 * TTFT_POINTS)] for place in range(TTFT_POINTS)])


def _percentile(ordered: list[float], share: float) -> float | None:
    """Return the smallest value that at least `share` of the ordered values do not exceed."""
    if not ordered:
        return None
    rank = -(-len(ordered) * share // 1)
    return ordered[max(0, int(rank) - 1)]
