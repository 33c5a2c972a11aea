"""The finding of a what-if in one line, judged only if all seeds agree."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.trials.whatif import result as names
from controlplane.trials.whatif.result import HIT_RATE, ON_TIME, REJECTED, TTFT_MEAN, TTFT_P90, Difference, WhatIfResult

BETTER, WORSE, MIXED, EVEN = "better", "worse", "mixed", "even"
SHARES = (ON_TIME, names.LATE, names.FAILED, REJECTED, HIT_RATE)
ABOUT = {
    ON_TIME: "on time",
    TTFT_MEAN: "TTFT",
    TTFT_P90: "TTFT p90",
    HIT_RATE: "cache hits",
    REJECTED: "rejections",
    names.FAILED: "failed requests",
    names.LATE: "late requests",
    names.TTFT_P99: "TTFT p99",
    names.TTFT_P50: "median TTFT",
    names.GOODPUT: "goodput",
    names.CV: "load balance",
}
"""The figures of a finding, most important first. All figures of the table, so that no row contradicts the finding."""
LEAST_POINTS = 0.001
_LEAST_SHARE = 0.02
"""Smaller changes are ignored, even if all seeds agree: a simulation is hardly better."""
_ON_TIME = "the on-time share"


@dataclass(frozen=True, slots=True)
class Headline:
    """The finding in one line, and its supporting figures, most important first."""

    kind: str
    """BETTER, WORSE, MIXED, or EVEN."""
    title: str
    better: tuple[str, ...]
    worse: tuple[str, ...]


def headline(result: WhatIfResult) -> Headline:
    """Return the finding of the runs."""
    clear = {
        difference.figure: verdict_of(difference, result.seeds)
        for difference in result.differences
        if difference.figure in ABOUT
    }
    better = tuple(name for name in ABOUT if clear.get(name) == BETTER)
    worse = tuple(name for name in ABOUT if clear.get(name) == WORSE)
    if better and worse:
        return Headline(MIXED, f"Better on {_title(better[0])}, worse on {_title(worse[0])}", better, worse)
    if better:
        return Headline(BETTER, f"Better on {_title(better[0])}", better, worse)
    if worse:
        return Headline(WORSE, f"Worse on {_title(worse[0])}", better, worse)
    return Headline(EVEN, "No clear difference on this traffic", better, worse)


def verdict_of(difference: Difference, seeds: int) -> str:
    """Return better or worse if every seed agrees and the change is large enough, otherwise even."""
    if abs(difference.change.mean) < _least(difference):
        return EVEN
    return BETTER if difference.better == seeds else WORSE if difference.worse == seeds else EVEN


def _title(figure: str) -> str:
    return _ON_TIME if figure == ON_TIME else ABOUT[figure]


def _least(difference: Difference) -> float:
    return LEAST_POINTS if difference.figure in SHARES else _LEAST_SHARE * abs(difference.base.mean)
