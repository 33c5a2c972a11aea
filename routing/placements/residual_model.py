"""A linear model learned online by recursive least squares with forgetting (LBGR §4.2, App. A).

θ minimises Σ λ^(n−i) (yᵢ − θᵀφᵢ)² over the n observations so far, with the prior covariance P₀ = p·I.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

LARGEST_COVARIANCE = 1e6
"""Limit of the covariance. Forgetting makes it grow without bound in directions that are never observed."""


class ResidualModel:
    """Predicts a number from features.

    Mutable state: `theta` (weights) and `_covariance`, symmetric, one row per feature.
    """

    def __init__(self, features: int, *, forgetting: float, prior: float) -> None:
        self.theta = [0.0] * features
        self._forgetting = forgetting
        self._covariance = [[prior if row == column else 0.0 for column in range(features)] for row in range(features)]

    def predict(self, features: Sequence[float]) -> float:
        """Return θᵀφ."""
        return math.fsum([weight * value for weight, value in zip(self.theta, features, strict=True)])

    def update(self, features: Sequence[float], observed: float) -> None:
        """Learn from one observation. A non-finite value is ignored."""
        error = observed - self.predict(features)
        if not math.isfinite(error):
            return
        seen = [self._dot(row, features) for row in self._covariance]
        scale = self._forgetting + self._dot(seen, features)
        gain = [value / scale for value in seen]
        self.theta = [weight + step * error for weight, step in zip(self.theta, gain, strict=True)]
        grown = max(row[at] - gain[at] * seen[at] for at, row in enumerate(self._covariance))
        # Only so much is forgotten that the largest variance stays within its limit.
        forgetting = max(self._forgetting, min(grown / LARGEST_COVARIANCE, 1.0))
        covariance = [
            [(value - gain[at] * other) / forgetting for value, other in zip(row, seen, strict=True)]
            for at, row in enumerate(self._covariance)
        ]
        # Rounding would let the two halves diverge, so one of them is copied to the other.
        self._covariance = [
            [covariance[min(at, other)][max(at, other)] for other in range(len(row))]
            for at, row in enumerate(covariance)
        ]

    def check(self) -> None:
        """Raise AssertionError unless all numbers are finite and the covariance is symmetric and bounded."""
        rows = self._covariance
        if not all(math.isfinite(value) for row in [self.theta, *rows] for value in row):
            raise AssertionError("a weight is not a finite number")
        for at, row in enumerate(rows):
            if not -1e-9 <= row[at] <= LARGEST_COVARIANCE * (1 + 1e-9):
                raise AssertionError(f"variance {row[at]} of feature {at} is out of bounds")
            if any(abs(row[other] - rows[other][at]) > 1e-6 * (1 + abs(row[other])) for other in range(len(rows))):
                raise AssertionError("the covariance is not symmetric")

    @staticmethod
    def _dot(left: Sequence[float], right: Sequence[float]) -> float:
        return math.fsum([one * two for one, two in zip(left, right, strict=True)])
