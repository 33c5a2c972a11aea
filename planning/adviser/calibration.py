"""Whether predicted ranges contain what was measured after promotions, and how much wider they have to be."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from planning.adviser.prediction import COVERAGE, RATIO, SHARE, AdviceObjective, PredictedChange, WindowFigures

LEAST = 20
"""Minimum number of measured predictions for a verdict about ranges."""
MOST = 100
"""Number of newest measured predictions that count."""
ACCEPTED = 0.85
MOST_WIDENING = 5.0


class MeasuredPrediction(msgspec.Struct, frozen=True):
    """A prediction and what came. `factor` is how much its range was widened."""

    kind: str
    """SHARE or RATIO."""
    predicted: float
    low: float
    high: float
    factor: float
    measured: float

    @property
    def within(self) -> bool:
        """Whether the range contains the measured change."""
        return self.low <= self.measured <= self.high

    @property
    def needed(self) -> float:
        """The factor by which the range as predicted would have to be widened to contain the measured change."""
        predicted, measured = _linear(self.predicted, self.kind), _linear(self.measured, self.kind)
        end = self.high if measured > predicted else self.low
        half = abs(_linear(end, self.kind) - predicted) / self.factor
        return abs(measured - predicted) / half if half > 0 else math.inf if measured != predicted else 0.0


def coverage(measured: Sequence[MeasuredPrediction]) -> float | None:
    """Return the share of ranges that contain the measured change; None with fewer than LEAST."""
    return sum(item.within for item in measured) / len(measured) if len(measured) >= LEAST else None


def widening(newest: Sequence[MeasuredPrediction]) -> float:
    """Return the factor for the next ranges, from 1 to MOST_WIDENING.

    It is 1 while the ranges as predicted, without widening, cover ACCEPTED. Otherwise it is the one with which they
    would have covered COVERAGE, so that a wider range does not end its own reason.
    """
    needed = sorted(item.needed for item in newest[:MOST])
    if len(needed) < LEAST or sum(item <= 1 for item in needed) / len(needed) >= ACCEPTED:
        return 1.0
    return min(MOST_WIDENING, max(1.0, needed[math.ceil(COVERAGE * len(needed)) - 1]))


def widened(change: PredictedChange, factor: float) -> PredictedChange:
    """Return the change with a range that is wider by the factor; ranges of times on a logarithmic scale."""
    kind, middle = change.objective.kind, _linear(change.change, change.objective.kind)
    low, high = (_plain(middle + factor * (_linear(end, kind) - middle), kind) for end in (change.low, change.high))
    return msgspec.structs.replace(change, low=low, high=high)


def change_between(objective: AdviceObjective, before: WindowFigures, after: WindowFigures) -> float | None:
    """Return how a figure changed, as predictions state it; None if one side lacks it."""
    old, new = before.figures.get(objective.name), after.figures.get(objective.name)
    if old is None or new is None:
        return None
    if objective.kind == SHARE:
        return new - old
    return new / old - 1 if old > 0 else None


def _linear(change: float, kind: str) -> float:
    return math.log1p(max(change, -0.999)) if kind == RATIO else change


def _plain(value: float, kind: str) -> float:
    return math.expm1(value) if kind == RATIO else value
