"""The results of a replay: one outcome per request, and the summary."""

from __future__ import annotations

from collections import Counter, deque

import msgspec

from simulator.percentile import percentile

_KEPT_TTFTS = 200_000


class ReplayOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How one request ended. `status` is ok, rejected (429 or 503), or failed (with the reason in `error`)."""

    status: str
    ttft_s: float | None = None
    """Seconds from sending the request to the first text, at the client."""
    prompt_tokens: int = 0
    cached_tokens: int | None = None
    """Number of cached tokens from the response's usage."""
    output_tokens: int = 0
    error: str = ""


class ReplaySummary(msgspec.Struct, frozen=True, kw_only=True):
    """Counts, times in seconds, and shares 0..1; None if nothing was measured."""

    requests: int
    ok: int
    rejected: int
    failed: int
    duration_s: float
    ttft_mean_s: float | None
    ttft_p50_s: float | None
    ttft_p90_s: float | None
    ttft_p99_s: float | None
    prompt_tokens: int
    cached_tokens: int
    cached_share: float | None
    """Cached share of the prompt tokens, over responses that report it."""
    output_tokens: int
    output_tokens_per_s: float
    latest_send_s: float
    """Longest delay of a send after its scheduled time. If it is large, raise --max-in-flight or lower --speed."""
    errors: dict[str, int]


class SummaryCounter:
    """Aggregates outcomes. Keeps the newest 200,000 times for the percentiles."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.latest_send_s = 0.0
        # Bounded, since a replay that loops has no end.
        self._ttfts: deque[float] = deque(maxlen=_KEPT_TTFTS)
        self._prompt_tokens = 0
        self._reported_tokens = 0
        self._cached_tokens = 0
        self._output_tokens = 0

    @property
    def done(self) -> int:
        """Number of requests that have ended, in any way."""
        return self.counts.total()

    def add(self, outcome: ReplayOutcome) -> None:
        """Count one request."""
        self.counts[outcome.status] += 1
        if outcome.error:
            self.errors[outcome.error] += 1
        if outcome.ttft_s is not None:
            self._ttfts.append(outcome.ttft_s)
        self._prompt_tokens += outcome.prompt_tokens
        self._output_tokens += outcome.output_tokens
        if outcome.cached_tokens is not None:
            self._reported_tokens += outcome.prompt_tokens
            self._cached_tokens += outcome.cached_tokens

    def summary(self, duration_s: float) -> ReplaySummary:
        """Return the totals so far."""
        ttfts = sorted(self._ttfts)
        return ReplaySummary(
            requests=self.done,
            ok=self.counts["ok"],
            rejected=self.counts["rejected"],
            failed=self.counts["failed"],
            duration_s=round(duration_s, 3),
            ttft_mean_s=sum(ttfts) / len(ttfts) if ttfts else None,
            ttft_p50_s=percentile(ttfts, 50),
            ttft_p90_s=percentile(ttfts, 90),
            ttft_p99_s=percentile(ttfts, 99),
            prompt_tokens=self._prompt_tokens,
            cached_tokens=self._cached_tokens,
            cached_share=self._cached_tokens / self._reported_tokens if self._reported_tokens else None,
            output_tokens=self._output_tokens,
            output_tokens_per_s=self._output_tokens / duration_s if duration_s > 0 else 0.0,
            latest_send_s=round(self.latest_send_s, 3),
            errors=dict(self.errors.most_common(20)),
        )


def render_summary(summary: ReplaySummary) -> str:
    """Return the summary as human-readable lines."""

    def seconds(value: float | None) -> str:
        return "–" if value is None else f"{value:.3f} s"

    share = "not reported" if summary.cached_share is None else f"{summary.cached_share:.1%}"
    lines = [
        f"requests      {summary.requests} in {summary.duration_s:.1f} s",
        f"ok            {summary.ok}   rejected {summary.rejected}   failed {summary.failed}",
        f"TTFT          p50 {seconds(summary.ttft_p50_s)}   p90 {seconds(summary.ttft_p90_s)}   "
        f"p99 {seconds(summary.ttft_p99_s)}",
        f"cached tokens {share} of {summary.prompt_tokens} prompt tokens",
        f"output        {summary.output_tokens} tokens, {summary.output_tokens_per_s:.1f} tokens/s",
    ]
    if summary.latest_send_s > 1:
        lines.append(f"late          the worst request was sent {summary.latest_send_s:.1f} s behind its schedule")
    lines.extend(f"error         {count} × {error}" for error, count in summary.errors.items())
    return "\n".join(lines)
