"""Figures of the last seconds' requests: rates, TTFT percentiles, shares on time and cached."""

from __future__ import annotations

from collections import deque
from typing import Protocol

import msgspec

from gateway.contracts.key_source import MEDIA
from routing.values.decision import Decision

COMPLETED = "completed"
FAILED = "failed"
REJECTED = "rejected"
CANCELLED = "cancelled"
JUDGED = (COMPLETED, FAILED, REJECTED)
"""Outcomes that count for the objective."""
TTFT_POINTS = 64
"""Maximum number of points, so that ranks are accurate to 1/128 of all."""


class EndedRequest(Protocol):
    """The fields of an ended request's record that the window reads (gateway.pools.pool.recent_decisions)."""

    decision: Decision
    key_source: str
    arrived_s: float
    first_token_s: float | None
    finished_s: float | None
    cached_tokens: int | None
    outcome: str

    @property
    def on_time(self) -> bool:
        """Return whether the complete answer arrived and met the objective."""
        ...


class TrafficSummary(msgspec.Struct, frozen=True, gc=False):
    """A summary of the window. Shares 0..1, times in seconds, None: no request."""

    requests_per_s: float
    prompt_tokens_per_s: float
    ttft_p50_s: float | None
    ttft_p90_s: float | None
    ttft_p99_s: float | None
    on_time_share: float | None
    hit_share: float | None
    approximate_share: float | None
    """Share of requests with guessed block keys after an image or audio."""
    late: int
    """Completed requests whose first token was late."""
    failed: int
    rejected: int
    judged: int
    """Requests that were on time, late, failed or rejected."""
    ttft_count: int
    ttft_points: tuple[float, ...]
    """Sorted TTFTs: all, or TTFT_POINTS evenly spread by rank."""


class TrafficWindow:
    """Requests that ended in the last `window_s` seconds, at most `max_results`, and totals per engine since the start.

    Mutable: `_ended` in order of their ends, `_ttfts` of those that have one, their sums, and `_totals`. Sums are
    updated as results are added and removed, because a window that is read twice a second can contain thousands. If the
    limit shortens the window, rates are computed over the remaining time.
    """

    def __init__(self, window_s: float = 15.0, max_results: int = 16_384) -> None:
        self.window_s = window_s
        self._max_results = max_results
        self._ended: deque[EndedRequest] = deque()
        self._ttfts: deque[float] = deque()
        self._prompt_tokens = self._judged = self._punctual = self._failed = self._rejected = 0
        self._reported_prompt = self._reported_cached = self._approximate = 0
        self._totals: dict[str, tuple[int, int, int]] = {}
        self._first_s: float | None = None
        self.requests = 0
        """Counts since the start, as for the two below. Cancelled requests are excluded."""
        self.on_time = 0
        self.rejected = 0

    def __len__(self) -> int:
        return len(self._ended)

    def add(self, record: EndedRequest) -> None:
        """Count an ended request, and its tokens for the engine that served it."""
        if self._first_s is None:
            self._first_s = record.finished_s
        self._ended.append(record)
        self._count(record, 1)
        if record.first_token_s is not None:
            self._ttfts.append(record.first_token_s - record.arrived_s)
        if len(self._ended) > self._max_results:
            self._drop_oldest()
        outcome, decision = record.outcome, record.decision
        if outcome in JUDGED:
            self.requests += 1
            self.on_time += record.on_time
            self.rejected += outcome == REJECTED
        if outcome == COMPLETED and decision.engine_id:
            prompt, cached, predicted = self._totals.get(decision.engine_id, (0, 0, 0))
            self._totals[decision.engine_id] = (
                prompt + decision.prompt_tokens,
                cached + (record.cached_tokens or 0),
                predicted + decision.hit_tokens,
            )

    def totals(self, engine_id: str) -> tuple[int, int]:
        """Return (prompt tokens, cached tokens) of the engine's completed requests since the start."""
        return self._totals.get(engine_id, (0, 0, 0))[:2]

    def predicted(self, engine_id: str) -> int:
        """Return the cached tokens that the decisions on the same requests predicted."""
        return self._totals.get(engine_id, (0, 0, 0))[2]

    def forget(self, engine_id: str) -> None:
        """Delete the totals of an engine that left the topology."""
        self._totals.pop(engine_id, None)

    def summary(self, now: float) -> TrafficSummary:
        """Drop requests older than the window; return the figures of the remaining ones."""
        ended, earliest = self._ended, now - self.window_s
        while ended and (ended[0].finished_s or 0.0) < earliest:
            self._drop_oldest()
        span_s = self._span_s(now)
        ttfts = sorted(self._ttfts)
        return TrafficSummary(
            requests_per_s=len(ended) / span_s,
            prompt_tokens_per_s=self._prompt_tokens / span_s,
            ttft_p50_s=_percentile(ttfts, 0.50),
            ttft_p90_s=_percentile(ttfts, 0.90),
            ttft_p99_s=_percentile(ttfts, 0.99),
            on_time_share=self._punctual / self._judged if self._judged else None,
            hit_share=self._reported_cached / self._reported_prompt if self._reported_prompt else None,
            approximate_share=self._approximate / len(ended) if ended else None,
            late=self._judged - self._punctual - self._failed - self._rejected,
            failed=self._failed,
            rejected=self._rejected,
            judged=self._judged,
            ttft_count=len(ttfts),
            ttft_points=_points(ttfts),
        )

    def _drop_oldest(self) -> None:
        oldest = self._ended.popleft()
        self._count(oldest, -1)
        if oldest.first_token_s is not None:
            self._ttfts.popleft()

    def _count(self, record: EndedRequest, sign: int) -> None:
        """Add a request to the window's sums (sign 1) or subtract it (-1)."""
        prompt_tokens, cached_tokens = record.decision.prompt_tokens, record.cached_tokens
        self._prompt_tokens += sign * prompt_tokens
        self._approximate += sign * (record.key_source == MEDIA)
        if record.outcome in JUDGED:
            self._judged += sign
            self._punctual += sign * record.on_time
            self._failed += sign * (record.outcome == FAILED)
            self._rejected += sign * (record.outcome == REJECTED)
        if cached_tokens is not None:
            self._reported_prompt += sign * prompt_tokens
            self._reported_cached += sign * cached_tokens

    def _span_s(self, now: float) -> float:
        """Return the seconds that the requests cover, at least 1: below the window at the start and at the limit."""
        since = self._first_s if len(self._ended) < self._max_results else self._ended[0].finished_s
        since = now if since is None else since
        return max(1.0, min(self.window_s, now - since))

    def check(self) -> None:
        """Raise AssertionError unless the sums are those of the requests in the window."""
        fresh = TrafficWindow(self.window_s, self._max_results)
        for record in self._ended:
            fresh.add(record)
        for name in (
            "_ttfts",
            "_prompt_tokens",
            "_judged",
            "_punctual",
            "_failed",
            "_rejected",
            "_reported_prompt",
            "_reported_cached",
            "_approximate",
        ):
            if getattr(fresh, name) != getattr(self, name):
                raise AssertionError(f"{name} is not that of the {len(self._ended)} requests in the window")


def _points(ordered: list[float]) -> tuple[float, ...]:
    count = len(ordered)
    if count <= TTFT_POINTS:
        return tuple(ordered)
    return tuple([ordered[(2 * index + 1) * count // (2 * TTFT_POINTS)] for index in range(TTFT_POINTS)])


def _percentile(ordered: list[float], share: float) -> float | None:
    """Return the smallest of the ordered values that is not exceeded by at least `share` of them."""
    if not ordered:
        return None
    rank = -(-len(ordered) * share // 1)
    return ordered[max(0, int(rank) - 1)]
