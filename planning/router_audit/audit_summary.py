"""Sums of an audit's decisions, and ranges of its figures over what is not known."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean, stdev

import msgspec

CACHE, BUSY, GROWTH, EVICTED = "cache", "busy", "growth", "evicted"
CAUSES = (CACHE, BUSY, GROWTH, EVICTED)
"""Causes of regret: another engine held more of the prompt; another engine was less busy; the engine's queue grew after
the decision; blocks were no longer cached.
"""
WORST = 10
NEGLIGIBLE_S = 0.001
_PARTS, _T_90 = 20, 1.729


class AuditedDecision(msgspec.Struct, frozen=True):
    """One decision of the audited router, judged. Engines by name, times in seconds."""

    request_id: str
    at_s: float
    """Seconds since the first request."""
    prompt_tokens: int
    engine: str
    hit_tokens: int
    ttft_s: float
    regret_s: float
    """Seconds that the better engine would have saved this request, all others unchanged."""
    parts: dict[str, float]
    """Cause → seconds; they sum up to `regret_s`."""
    better_engine: str
    """The engine with the lowest expected time of all others."""
    better_ttft_s: float
    better_hit_tokens: int
    default_engine: str
    """What Headway's default would have chosen at that moment."""

    @property
    def cause(self) -> str:
        """Return the cause of the largest part. There must be regret."""
        return max(self.parts, key=self.parts.__getitem__)


class AuditedEngine(msgspec.Struct, frozen=True):
    """Decisions for one engine."""

    engine: str
    requests: int
    prompt_tokens: int
    hit_tokens: int
    regret_s: float


class AuditSummary(msgspec.Struct, frozen=True):
    """The sums of all decisions."""

    decisions: int
    regretted: int
    """Number of decisions with regret."""
    regret_s: float
    agreed: int
    """Number of decisions that Headway's default would have made, too."""
    causes: dict[str, float]
    worst: tuple[AuditedDecision, ...]
    """Most regret first."""
    engines: tuple[AuditedEngine, ...]
    """By name."""
    per_slice: tuple[float, ...]
    """Regret by time of arrival, in equal parts of the log's span."""


def summary_of(decisions: Sequence[AuditedDecision], slices: int = 48) -> AuditSummary:
    """Return the sums. There must be a decision."""
    span_s = max(decision.at_s for decision in decisions) or 1.0
    per_slice = [0.0] * slices
    by_engine: defaultdict[str, list[AuditedDecision]] = defaultdict(list)
    for decision in decisions:
        per_slice[min(slices - 1, int(decision.at_s / span_s * slices))] += decision.regret_s
        by_engine[decision.engine].append(decision)
    regretted = [decision for decision in decisions if decision.regret_s >= NEGLIGIBLE_S]
    return AuditSummary(
        decisions=len(decisions),
        regretted=len(regretted),
        regret_s=sum(decision.regret_s for decision in decisions),
        agreed=sum(decision.engine == decision.default_engine for decision in decisions),
        causes={cause: sum(decision.parts.get(cause, 0.0) for decision in decisions) for cause in CAUSES},
        worst=tuple(sorted(regretted, key=lambda item: (-item.regret_s, item.at_s, item.request_id))[:WORST]),
        engines=tuple(_share(name, by_engine[name]) for name in sorted(by_engine)),
        per_slice=tuple(per_slice),
    )


def _share(engine: str, decisions: Sequence[AuditedDecision]) -> AuditedEngine:
    return AuditedEngine(
        engine,
        len(decisions),
        sum(decision.prompt_tokens for decision in decisions),
        sum(decision.hit_tokens for decision in decisions),
        sum(decision.regret_s for decision in decisions),
    )


class FigureRange(msgspec.Struct, frozen=True):
    """A figure under the assumptions that fit the log best, and its extremes under all of them."""

    value: float
    low: float
    high: float

    def divided(self, number: int) -> FigureRange:
        """Return the range of a mean from that of a sum."""
        return FigureRange(self.value / number, self.low / number, self.high / number)

    def widened(self, by: float) -> FigureRange:
        """Return the range with both ends moved outward."""
        return FigureRange(self.value, self.low - by, self.high + by)


def sampling_error(differences: Sequence[float]) -> float:
    """Return half the width of the 90 % interval of the mean of differences, in order of time.

    Neighbors share queues, so the interval is that of the means of 20 equal parts (Student's t with 19 degrees). 0 of
    fewer differences than parts.
    """
    size = len(differences) // _PARTS
    if not size:
        return 0.0
    means = [fmean(differences[part * size : (part + 1) * size]) for part in range(_PARTS)]
    return float(_T_90 * stdev(means) / _PARTS**0.5)


def figure_range(values: Iterable[float]) -> FigureRange:
    """Return the range of a figure; the first value counts as the best known."""
    known = list(values)
    return FigureRange(known[0], min(known), max(known))
