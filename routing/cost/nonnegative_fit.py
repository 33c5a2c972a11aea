"""Least squares with forgetting, bounded influence of outliers, and non-negative coefficients.

Errors are relative to the expected value, since times of long prompts scatter more. Beyond a multiple of the usual
error, a sample's influence stops growing (Huber 1964, weights from a running median). The best non-negative solution is
searched among all sets of coefficients that can be zero: exact, and only sixteen small systems for four coefficients.
Anchors (the prior at typical points, scaled to the level of the samples) keep coefficients plausible if the traffic
does not exercise their features.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import combinations

FORGETTING = 0.998
"""Weight that older samples keep with each new one: about 500 samples count."""
_ANCHOR_WEIGHT = 0.3
_RECENT = 63
_HUBER = 2.0
"""A sample's influence is capped at a relative error of this many medians."""
_LEAST_SCALE = 0.01
_SOLVE_EVERY = 8
_SCALED_FIRST = 16
"""The first samples only measure the speed of the engines relative to the prior."""
_TINY = 1e-12


class RunningMedian:
    """Median of the last values. Mutable: the values in order of arrival, and sorted."""

    def __init__(self, size: int = _RECENT) -> None:
        self._values: deque[float] = deque()
        self._sorted: list[float] = []
        self._size = size

    def add(self, value: float) -> None:
        """Add a value and drop the oldest."""
        if len(self._values) == self._size:
            del self._sorted[bisect_left(self._sorted, self._values.popleft())]
        self._values.append(value)
        insort(self._sorted, value)

    def value(self, default: float) -> float:
        """Return the median, or the default if it has no values."""
        return self._sorted[len(self._sorted) // 2] if self._sorted else default


class NonNegativeFit:
    """seconds = Σ coefficient · feature, learned online.

    Mutable state: the normal equations of the samples (`_a`, `_b`, in units of the prior), the running
    medians, and the coefficients last solved.
    """

    def __init__(self, prior: Sequence[float], anchors: Sequence[Sequence[float]]) -> None:
        if any(not math.isfinite(item) or item < 0 for item in prior) or not any(prior):
            raise ValueError(f"a prior needs coefficients of 0 or more, one above, not {list(prior)}")
        self._prior = tuple(prior)
        # Coefficients differ by ten orders of magnitude; in units of the prior's share all are near 1.
        self._unit = tuple(_unit_of(prior, anchors, n) for n in range(len(prior)))
        self._anchors = [tuple(row) for row in anchors]
        size = len(prior)
        self._a = [[0.0] * size for _ in range(size)]
        self._b = [0.0] * size
        self._errors, self._levels = RunningMedian(), RunningMedian()
        self.coefficients: tuple[float, ...] = self._prior
        self.samples = 0

    def predict(self, features: Sequence[float]) -> float:
        """Return the seconds expected for these features."""
        return _dot(self.coefficients, features)

    def learn(self, features: Sequence[float], seconds: float) -> None:
        """Add one sample. `seconds` must be positive and finite; the caller rejects others."""
        self._levels.add(seconds / max(_dot(self._prior, features), _TINY))
        if self.samples < _SCALED_FIRST:
            # Judged by a prior that is far off, an outlier would be indistinguishable from the rest.
            level = self._levels.value(1.0)
            self.coefficients = tuple(level * item for item in self._prior)
        expected = max(self.predict(features), _TINY)
        error = abs(seconds - expected) / expected
        usual = max(self._errors.value(error), _LEAST_SCALE)
        self._errors.add(error)
        # Huber's weight, over the square of the expected time because errors count relative to it.
        weight = min(1.0, _HUBER * usual / error if error else 1.0) / expected**2
        scaled = [value * unit for value, unit in zip(features, self._unit, strict=True)]
        for n, row in enumerate(self._a):
            self._b[n] = FORGETTING * self._b[n] + weight * seconds * scaled[n]
            for m in range(len(row)):
                row[m] = FORGETTING * row[m] + weight * scaled[n] * scaled[m]
        self.samples += 1
        if self.samples >= _SCALED_FIRST and self.samples % _SOLVE_EVERY == 0:
            self._solve()

    def _solve(self) -> None:
        a, b = [row[:] for row in self._a], self._b[:]
        level = self._levels.value(1.0)
        for features in self._anchors:
            seconds = max(level * _dot(self._prior, features), _TINY)
            scaled = [value * unit for value, unit in zip(features, self._unit, strict=True)]
            for n, row in enumerate(a):
                b[n] += _ANCHOR_WEIGHT / seconds * scaled[n]
                for m in range(len(row)):
                    row[m] += _ANCHOR_WEIGHT / seconds**2 * scaled[n] * scaled[m]
        solution = _best_nonnegative(a, b)
        if solution is not None:
            self.coefficients = tuple(value * unit for value, unit in zip(solution, self._unit, strict=True))


def _unit_of(prior: Sequence[float], anchors: Sequence[Sequence[float]], n: int) -> float:
    """Return a coefficient of the prior. If it is 0, return the value that yields a hundredth of an anchor's time."""
    if prior[n] > 0:
        return prior[n]
    shares = [0.01 * _dot(prior, row) / row[n] for row in anchors if row[n] > 0]
    return min(shares, default=1.0)


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    return sum(one * other for one, other in zip(left, right, strict=True))


def _best_nonnegative(a: list[list[float]], b: list[float]) -> list[float] | None:
    """Return the x ≥ 0 that minimizes xᵀax − 2bᵀx, None if no system can be solved."""
    best: tuple[float, list[float]] | None = None
    # Exact for few coefficients: every set that may be above zero is tried.
    for free in _subsets(len(b)):
        solved = _solved([[a[n][m] for m in free] for n in free], [b[n] for n in free])
        if solved is None or min(solved) < 0:
            continue
        x = [0.0] * len(b)
        for n, value in zip(free, solved, strict=True):
            x[n] = value
        # At a stationary point of its set the objective is −bᵀx.
        cost = -_dot(b, x)
        # Larger sets come first, and stay where a smaller one is better by rounding alone.
        if best is None or cost < best[0] - _TINY * abs(best[0]):
            best = (cost, x)
    return None if best is None else best[1]


def _subsets(size: int) -> Iterator[tuple[int, ...]]:
    for count in range(size, 0, -1):
        yield from combinations(range(size), count)


def _solved(a: list[list[float]], b: list[float]) -> list[float] | None:
    """Return x with ax = b by elimination with pivots, None for a singular matrix. Modifies its arguments."""
    size = len(b)
    for column in range(size):
        pivot = max(range(column, size), key=lambda row: abs(a[row][column]))
        if abs(a[pivot][column]) < _TINY:
            return None
        a[column], a[pivot], b[column], b[pivot] = a[pivot], a[column], b[pivot], b[column]
        for row in range(column + 1, size):
            factor = a[row][column] / a[column][column]
            b[row] -= factor * b[column]
            for n in range(column, size):
                a[row][n] -= factor * a[column][n]
    for column in reversed(range(size)):
        b[column] = (b[column] - sum(a[column][n] * b[n] for n in range(column + 1, size))) / a[column][column]
    return b
