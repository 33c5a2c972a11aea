"""Results of one arm's requests within a few seconds: counts that can be added over time, pools, and gateways."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

BUCKET_RATIO = 1.15
"""Ratio of the ends of adjacent TTFT buckets."""
FIRST_BUCKET_S = 0.001
BUCKETS = 86
"""The last bucket contains everything from 145 s on."""
_LOG_RATIO = math.log(BUCKET_RATIO)


class ArmWindow(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Observed results of one arm, without cancelled and invalid requests."""

    judged: int = 0
    """Requests with a known TTFT result, on time or late."""
    on_time: int = 0
    ended: int = 0
    failed: int = 0
    rejected: int = 0
    unanswered: int = 0
    """Failed requests without a first token, which are judged, too."""
    ttft: dict[int, int] = {}
    """Times to first token by bucket (bucket_of)."""
    # Sums that add up, for geometric means, their errors, and the correction for prompt length (decision 13).
    ttft_log_sum: float = 0.0
    """Sum of the natural logarithms of the times to first token in seconds."""
    ttft_log_squares: float = 0.0
    """Sum of the squares of these logarithms."""
    size_log_sum: float = 0.0
    """Sum of the natural logarithms of the prompt tokens."""
    size_log_squares: float = 0.0
    """Sum of the squares of these logarithms."""
    size_ttft_logs: float = 0.0
    """Sum of the products of both logarithms of each request."""
    prompt_tokens: int = 0
    """Prompt tokens of completed requests whose engine reported its cached tokens."""
    cached_tokens: int = 0

    @property
    def late(self) -> int:
        """Requests that missed their objective: late first token, rejected, or failed."""
        return self.judged - self.on_time

    @property
    def late_share(self) -> float | None:
        """Share of the judged requests that were late, and neither failed without an answer nor were rejected."""
        late = max(0, self.late - self.rejected - self.unanswered)
        return late / self.judged if self.judged else None

    @property
    def answered(self) -> int:
        """Requests with an observed first token."""
        return sum(self.ttft.values())

    def problem(self) -> str:
        """Return an impossible figure among the counts, empty if all are possible."""
        counts = [*(getattr(self, name) for name in _COUNTS), *self.ttft.values()]
        if min(counts) < 0 or max(self.on_time, self.answered) > self.judged:
            return "counts are negative or above their whole"
        if any(not 0 <= bucket < BUCKETS for bucket in self.ttft):
            return f"a bucket is not between 0 and {BUCKETS - 1}"
        if not all(math.isfinite(getattr(self, name)) for name in _SUMS):
            return "a sum is no number"
        return ""

    @property
    def hit_share(self) -> float | None:
        """Cached share of the prompt tokens, None if no engine reported any."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else None


def bucket_of(ttft_s: float) -> int:
    """Return the bucket of a time to first token in seconds."""
    if ttft_s <= FIRST_BUCKET_S:
        return 0
    return min(BUCKETS - 1, 1 + int(math.log(ttft_s / FIRST_BUCKET_S) / _LOG_RATIO))


def bucket_end_s(bucket: int) -> float:
    """Return the end of the bucket in seconds."""
    return FIRST_BUCKET_S * BUCKET_RATIO**bucket


def quantile_s(window: ArmWindow, share: float) -> float | None:
    """Return the end of the bucket below which `share` of the times are, in seconds, None without times."""
    total = window.answered
    if not total:
        return None
    left = share * total
    for bucket in sorted(window.ttft):
        left -= window.ttft[bucket]
        # The product above may exceed a whole number by rounding.
        if left <= 1e-9:
            return bucket_end_s(bucket)
    return bucket_end_s(max(window.ttft))


def together(windows: Iterable[ArmWindow]) -> ArmWindow:
    """Return the sum of windows."""
    total = ArmTally()
    for window in windows:
        total.add(window)
    return total.window()


class ArmTally:
    """Sums results. Mutable: the counts, by the names of ArmWindow's fields."""

    __slots__ = ("_counts", "_sums", "_ttft")

    def __init__(self) -> None:
        self._counts = dict.fromkeys(_COUNTS, 0)
        self._sums = dict.fromkeys(_SUMS, 0.0)
        self._ttft: dict[int, int] = {}

    def add(self, window: ArmWindow) -> None:
        """Add a window."""
        for name in _COUNTS:
            self._counts[name] += getattr(window, name)
        for name in _SUMS:
            self._sums[name] += getattr(window, name)
        for bucket, count in window.ttft.items():
            self._ttft[bucket] = self._ttft.get(bucket, 0) + count

    def count(self, name: str, amount: int = 1) -> None:
        """Increase one count."""
        self._counts[name] += amount

    def answered(self, ttft_s: float, prompt_tokens: int) -> None:
        """Count a first token after `ttft_s` for a prompt of `prompt_tokens`."""
        bucket = bucket_of(ttft_s)
        self._ttft[bucket] = self._ttft.get(bucket, 0) + 1
        ttft, size, sums = math.log(max(ttft_s, FIRST_BUCKET_S)), math.log(max(prompt_tokens, 1)), self._sums
        sums["ttft_log_sum"] += ttft
        sums["ttft_log_squares"] += ttft * ttft
        sums["size_log_sum"] += size
        sums["size_log_squares"] += size * size
        sums["size_ttft_logs"] += size * ttft

    def window(self) -> ArmWindow:
        """Return the counts as a window."""
        sums = self._sums
        return ArmWindow(
            **self._counts,
            ttft=dict(self._ttft),
            ttft_log_sum=sums["ttft_log_sum"],
            ttft_log_squares=sums["ttft_log_squares"],
            size_log_sum=sums["size_log_sum"],
            size_log_squares=sums["size_log_squares"],
            size_ttft_logs=sums["size_ttft_logs"],
        )


_COUNTS = ("judged", "on_time", "ended", "failed", "rejected", "unanswered", "prompt_tokens", "cached_tokens")
_SUMS = ("ttft_log_sum", "ttft_log_squares", "size_log_sum", "size_log_squares", "size_ttft_logs")
