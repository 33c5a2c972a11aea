"""The answer of a what-if: figures of both policies with their spread over seeds, and their differences."""

from __future__ import annotations

import msgspec

TTFT_MEAN, TTFT_P50, TTFT_P90, TTFT_P99 = "ttft_mean_s", "ttft_p50_s", "ttft_p90_s", "ttft_p99_s"
ON_TIME, HIT_RATE, CV, REJECTED, GOODPUT = "on_time_share", "hit_rate", "mean_cv", "rejected_share", "goodput_qps"
FIGURES = (ON_TIME, TTFT_MEAN, TTFT_P50, TTFT_P90, TTFT_P99, HIT_RATE, CV, REJECTED, GOODPUT)
"""In display order."""
MORE_IS_BETTER = frozenset({ON_TIME, HIT_RATE, GOODPUT})
TRUSTED_ERROR = 0.15
"""Up to this model error sizes are reliable, beyond it only the ranking."""


class Spread(msgspec.Struct, frozen=True):
    """One figure over the seeds."""

    mean: float
    low: float
    high: float


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One policy on this traffic, or what really happened."""

    figures: dict[str, Spread]
    """By name; unknown figures are left out."""
    ttft_quantiles_s: list[float]
    """Percentiles 0 to 100 of the times to first token of answered requests, each the mean over the seeds."""
    answered_share: float
    """Share of the counted requests."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of the draft against the base, seed by seed."""

    figure: str
    base: Spread
    draft: Spread
    change: Spread
    """Draft − base of the same seed."""
    better: int
    """Seeds in which the draft is better."""
    worse: int


class Band(msgspec.Struct, frozen=True, kw_only=True):
    """Requests of one range of prompt lengths: the share of them on time."""

    from_tokens: int
    to_tokens: int
    requests: int
    base: Spread
    draft: Spread
    actual: float | None = None


class WhatIfResult(msgspec.Struct, frozen=True, kw_only=True):
    """The whole answer. Shares 0..1 of the counted requests."""

    requests: int
    counted: int
    seeds: int
    engines: int
    engine_model: str
    costs: str
    """learned, learned_prefill or written: the source of the simulated engines' times."""
    kv_tokens: int | None
    ttft_slo_s: float
    """The base's objective, by which both sides are judged."""
    base: Side
    draft: Side
    differences: list[Difference]
    bands: list[Band]
    """Four quarters by prompt length, and the longest tenth."""
    actual: Side | None = None
    """The recorded outcome, if there is one."""
    model_error: float | None = None
    """Relative error of the simulated mean TTFT of the base, or of the draft beside a baseline, against the recorded
    one; None: that version did not decide then.
    """
    coarse_starts: bool = False
    """A policy keeps equal beginnings together, and the recording distinguishes them less finely than the pool does."""
