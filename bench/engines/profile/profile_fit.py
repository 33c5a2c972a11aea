"""Fits an engine profile's cost figures to measured prefills and decode steps; standard library only.

The figures are those of simulator.engine_models.engine_profile: seconds of a prefill = base + a·u + b·u·(L − u/2) +
c·hit, and of a decode step = base + d·batch + e·context. The fit minimizes squared *relative* errors, so that short
prompts count as much as long ones; no figure is below zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

PREFILL_FIGURES = (
    "prefill_base_s",
    "prefill_per_token_s",
    "prefill_per_token_squared_s",
    "prefill_per_hit_token_s",
)
STEP_FIGURES = ("step_base_s", "step_per_sequence_s", "step_per_context_token_s")


@dataclass(frozen=True, slots=True)
class PrefillSample:
    """One prefill: prompt and cached tokens, and the seconds it took."""

    prompt_tokens: int
    hit_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class StepSample:
    """One decode step: sequences, their context tokens in total, and the seconds it took."""

    batch: int
    context_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ProfileFit:
    """The cost figures by their names in a profile, and the relative errors of each sample in order."""

    figures: dict[str, float]
    prefill_errors: list[float]
    step_errors: list[float]

    @property
    def summary(self) -> str:
        """One sentence on how well the figures fit."""
        prefill, step = mean_error(self.prefill_errors), mean_error(self.step_errors)
        return (
            f"{len(self.prefill_errors)} prefills fitted within {prefill:.1%} in the mean, "
            f"{len(self.step_errors)} decode steps within {step:.1%}"
        )


def mean_error(errors: Sequence[float]) -> float:
    """Return the mean absolute value of relative errors."""
    return sum(abs(error) for error in errors) / len(errors) if errors else 0.0


def fit_profile(prefills: Sequence[PrefillSample], steps: Sequence[StepSample]) -> ProfileFit:
    """Return the best-fitting figures. Raises ValueError if there are fewer samples than figures."""
    prefill_rows = [_prefill_row(sample) for sample in prefills]
    step_rows = [[1.0, float(sample.batch), float(sample.context_tokens)] for sample in steps]
    prefill_seconds = [sample.seconds for sample in prefills]
    step_seconds = [sample.seconds for sample in steps]
    prefill = fit_non_negative(prefill_rows, prefill_seconds)
    step = fit_non_negative(step_rows, step_seconds)
    return ProfileFit(
        dict(zip((*PREFILL_FIGURES, *STEP_FIGURES), (*prefill, *step), strict=True)),
        _relative_errors(prefill_rows, prefill_seconds, prefill),
        _relative_errors(step_rows, step_seconds, step),
    )


def fit_non_negative(rows: Sequence[Sequence[float]], targets: Sequence[float]) -> list[float]:
    """Return non-negative coefficients with the least sum of squared relative errors.

    The result is exact: among all subsets of columns, it is the best one whose unconstrained solution is positive.
    Raises ValueError for fewer rows than columns, or for a target that is not positive.
    """
    width = len(rows[0]) if rows else 1
    if len(rows) < width:
        raise ValueError(f"{len(rows)} samples cannot fit {width} figures")
    if min(targets) <= 0:
        raise ValueError("a measured time must be above 0 s")
    # Division by the target turns absolute errors into relative ones, with 1 as every target.
    weighted = [[value / target for value in row] for row, target in zip(rows, targets, strict=True)]
    # Columns differ by many orders of magnitude; equal scales keep the normal equations well-conditioned.
    scales = [max(abs(row[column]) for row in weighted) or 1.0 for column in range(width)]
    scaled = [[value / scale for value, scale in zip(row, scales, strict=True)] for row in weighted]
    best, least = [0.0] * width, float(len(rows))
    for size in range(1, width + 1):
        for columns in combinations(range(width), size):
            solution = _solve(scaled, columns)
            if solution is None or min(solution) < 0:
                continue
            left = sum((1 - _dot([row[c] for c in columns], solution)) ** 2 for row in scaled)
            if left < least:
                least = left
                best = [0.0] * width
                for column, value in zip(columns, solution, strict=True):
                    best[column] = value / scales[column]
    return best


def _prefill_row(sample: PrefillSample) -> list[float]:
    uncached = max(1, sample.prompt_tokens - sample.hit_tokens)
    return [1.0, float(uncached), uncached * (sample.prompt_tokens - uncached / 2), float(sample.hit_tokens)]


def _relative_errors(
    rows: Sequence[Sequence[float]], targets: Sequence[float], coefficients: Sequence[float]
) -> list[float]:
    return [_dot(row, coefficients) / target - 1 for row, target in zip(rows, targets, strict=True)]


def _dot(row: Sequence[float], coefficients: Sequence[float]) -> float:
    return sum(value * coefficient for value, coefficient in zip(row, coefficients, strict=True))


def _solve(rows: Sequence[Sequence[float]], columns: Sequence[int]) -> list[float] | None:
    """Return the least-squares solution for targets of 1, by the normal equations; None if columns are dependent."""
    size = len(columns)
    matrix = [[sum(row[a] * row[b] for row in rows) for b in columns] + [sum(row[a] for row in rows)] for a in columns]
    for column in range(size):
        pivot = max(range(column, size), key=lambda line: abs(matrix[line][column]))
        if abs(matrix[pivot][column]) < 1e-12:
            return None
        matrix[column], matrix[pivot] = matrix[pivot], matrix[column]
        for line in range(size):
            if line != column:
                factor = matrix[line][column] / matrix[column][column]
                matrix[line] = [a - factor * b for a, b in zip(matrix[line], matrix[column], strict=True)]
    return [matrix[column][size] / matrix[column][column] for column in range(size)]
