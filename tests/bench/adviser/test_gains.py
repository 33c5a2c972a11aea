from __future__ import annotations

import pytest

from bench.adviser.gains import SeedGain, ttft_gain
from planning.adviser.prediction import TTFT_MEAN, WindowFigures


def run(ttft_s: float) -> WindowFigures:
    return WindowFigures(figures={TTFT_MEAN: ttft_s})


def test_a_gain_is_the_mean_relative_reduction_over_windows() -> None:
    assert ttft_gain([run(1.0), run(4.0)], [run(0.5), run(2.0)]) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("gain", "best", "within", "counts"), [(0.35, 0.5, True, True), (0.34, 0.5, True, False), (0.5, 0.5, False, False)]
)
def test_a_seed_counts_with_most_of_the_best_gain_inside_the_range(
    gain: float, best: float, within: bool, counts: bool
) -> None:
    assert SeedGain(gain, best, within, abstains_at_best=False).counts is counts
