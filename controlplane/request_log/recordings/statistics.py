"""Statistics of a recording's contents."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from controlplane.request_log.recordings.recorded_row import REJECTED, RecordedRow
from simulator.percentile import percentile

FAILURES = ("failed", "unanswered")
"""Outcomes of requests that an engine got and did not complete."""
JUDGED = ("completed", *FAILURES, REJECTED)
"""Outcomes of requests that are on time or not."""
BINS = 48


class RecordingStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of one recording. Shares are 0..1; None: unknown."""

    span_s: float
    """Seconds from the first arrival to the last."""
    sessions: int
    tenants: int
    prompt_tokens: int
    output_tokens: int
    answered: int
    """Number of requests with a recorded first token."""
    late: int
    """Completed requests whose first token was late."""
    failed: int
    """Requests with an incomplete answer, or without any."""
    rejected: int
    unread: int
    """Of the rejected, those that cannot be simulated because their prompts were not read."""
    ttft_p50_s: float | None
    ttft_p90_s: float | None
    hit_rate: float | None
    """Share of cached prompt tokens, over requests with a reported hit."""
    engines: int
    """Maximum number of engines that accepted work."""
    policy_versions: list[int]
    """Policy versions of the decisions, most frequent first."""
    arrivals: list[int]
    """Requests by time of arrival, in BINS equal parts of the span."""


class StatisticsCounter:
    """Accumulates rows as they are written. Everything is mutable."""

    def __init__(self) -> None:
        self.rows = 0
        self._sessions: set[str | int] = set()
        self._tenants: set[str] = set()
        self._prompt_tokens = self._output_tokens = self._engines = 0
        self._late = self._failed = self._rejected = self._unread = 0
        self._reported_tokens = self._cached_tokens = 0
        self._ttfts: list[float] = []
        self._versions: dict[int, int] = {}
        self._first_ms, self._last_ms = math.inf, 0.0
        self._arrivals_ms: list[float] = []

    def add(self, row: RecordedRow) -> None:
        """Count one row."""
        self.rows += 1
        self._first_ms, self._last_ms = min(self._first_ms, row.timestamp), max(self._last_ms, row.timestamp)
        self._arrivals_ms.append(row.timestamp)
        if row.session_id is not None:
            self._sessions.add(row.session_id)
        if row.tenant:
            self._tenants.add(row.tenant)
        # Nothing is known of the prompt of an unread request.
        self._prompt_tokens += 0 if row.unread else row.input_length
        self._output_tokens += row.output_length
        self._failed += row.outcome in FAILURES
        self._rejected += row.outcome == REJECTED
        self._late += row.late and row.outcome not in (*FAILURES, REJECTED)
        self._unread += row.unread
        self._engines = max(self._engines, row.engines)
        if row.cached_tokens is not None:
            self._reported_tokens += row.input_length
            self._cached_tokens += row.cached_tokens
        if row.ttft_s is not None:
            self._ttfts.append(row.ttft_s)
        if row.policy_version:
            self._versions[row.policy_version] = self._versions.get(row.policy_version, 0) + 1

    def statistics(self) -> RecordingStatistics:
        """Return the statistics of the added rows."""
        ttfts: Sequence[float] = sorted(self._ttfts)
        return RecordingStatistics(
            span_s=max(0.0, self._last_ms - self._first_ms) / 1000,
            sessions=len(self._sessions),
            tenants=len(self._tenants),
            prompt_tokens=self._prompt_tokens,
            output_tokens=self._output_tokens,
            answered=len(ttfts),
            late=self._late,
            failed=self._failed,
            rejected=self._rejected,
            unread=self._unread,
            ttft_p50_s=percentile(ttfts, 50),
            ttft_p90_s=percentile(ttfts, 90),
            hit_rate=self._cached_tokens / self._reported_tokens if self._reported_tokens else None,
            engines=self._engines,
            policy_versions=sorted(self._versions, key=lambda number: -self._versions[number])[:20],
            arrivals=self._arrivals(),
        )

    def _arrivals(self) -> list[int]:
        counts, length_ms = [0] * BINS, max(self._last_ms - self._first_ms, 1e-9) if self.rows else 1.0
        for arrival_ms in self._arrivals_ms:
            counts[min(BINS - 1, int((arrival_ms - self._first_ms) / length_ms * BINS))] += 1
        return counts


def plain(statistics: RecordingStatistics) -> dict[str, Any]:
    """Return the statistics as JSON values."""
    fields: dict[str, Any] = msgspec.to_builtins(statistics)
    return fields
