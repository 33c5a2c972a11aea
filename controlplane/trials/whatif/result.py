"""The result of a what-if: figures of both policies with their spread across seeds, and their differences."""

from __future__ import annotations

import msgspec

TTFT_MEAN, TTFT_P50, TTFT_P90, TTFT_P99 = "ttft_mean_s", "ttft_p50_s", "ttft_p90_s", "ttft_p99_s"
ON_TIME, HIT_RATE, CV, GOODPUT = "on_time_share", "hit_rate", "mean_cv", "goodput_qps"
LATE, FAILED, REJECTED = "late_share", "failed_share", "rejected_share"
FIGURES = (ON_TIME, LATE, FAILED, REJECTED, TTFT_MEAN, TTFT_P50, TTFT_P90, TTFT_P99, HIT_RATE, CV, GOODPUT)
"""In display order. The first four shares add up to 1."""
MORE_IS_BETTER = frozenset({ON_TIME, HIT_RATE, GOODPUT})
TRUSTED_ERROR = 0.15
"""Maximum model error at which sizes of differences are reliable. Above it, only the ranking is."""


class Spread(msgspec.Struct, frozen=True):
    """One figure across the seeds."""

    mean: float
    low: float
    high: float


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One policy on this traffic, or the recorded outcome."""

    figures: dict[str, Spread]
    """Figures by name. Unknown figures are omitted."""
    ttft_quantiles_s: list[float]
    """Percentiles 0 to 100 of the TTFT of answered requests, each the mean across the seeds."""
    answered_share: float
    """Share of the counted requests that were answered."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Difference of one figure between draft and base, by seed."""

    figure: str
    base: Spread
    draft: Spread
    change: Spread
    """Draft − base with the same seed."""
    better: int
    """Number of seeds in which the draft is better."""
    worse: int


class Band(msgspec.Struct, frozen=True, kw_only=True):
    """Requests in one range of prompt lengths, and the share of them on time."""

    from_tokens: int
    to_tokens: int
    requests: int
    base: Spread
    draft: Spread
    actual: float | None = None


class WhatIfResult(msgspec.Struct, frozen=True, kw_only=True):
    """The complete result. Shares are 0..1 of the counted requests."""

    requests: int
    """Requests that were simulated; `counted` are those after the warm-up."""
    counted: int
    seeds: int
    engines: int
    engine_model: str
    costs: str
    """learned, learned_prefill, or written: the source of the simulated engines' times."""
    kv_tokens: int | None
    ttft_slo_s: float
    """The base's objective, with which both sides are judged."""
    base: Side
    draft: Side
    differences: list[Difference]
    bands: list[Band]
    """Four quarters by prompt length, and the longest tenth."""
    actual: Side | None = None
    """The recorded outcome, if known."""
    model_error: float | None = None
    """Relative error of the simulated mean TTFT compared with the recorded one, for the base or, with a baseline, the
    draft. None: that version did not decide the recorded requests.
    """
    unread: int = 0
    """Requests of the counted span that were rejected before their prompts were read. They are part of `actual`, and
    are not simulated.
    """
    coarse_starts: bool = False
    """Whether a policy groups prompts by their first blocks and the recording's blocks are coarser than the pool's."""
