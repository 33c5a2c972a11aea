"""Coverage of ranges, and how much wider they become."""

import math
import random

import pytest

from planning.adviser.calibration import (
    LEAST,
    MOST_WIDENING,
    MeasuredPrediction,
    change_between,
    coverage,
    widened,
    widening,
)
from planning.adviser.prediction import OBJECTIVES, RATIO, SHARE, TTFT_MEAN, PredictedChange, WindowFigures

TTFT = next(item for item in OBJECTIVES if item.name == TTFT_MEAN)
ON_TIME = OBJECTIVES[0]


def came(measured: float, factor: float = 1.0, kind: str = SHARE) -> MeasuredPrediction:
    return MeasuredPrediction(kind, 0.1, 0.1 - 0.02 * factor, 0.1 + 0.02 * factor, factor, measured)


def test_fewer_than_twenty_give_no_verdict() -> None:
    assert coverage([came(0.5)] * (LEAST - 1)) is None
    assert widening([came(0.5)] * (LEAST - 1)) == 1
    assert coverage([came(0.1)] * 10 + [came(0.5)] * 10) == 0.5


def test_ranges_that_cover_enough_stay() -> None:
    assert widening([came(0.1)] * 17 + [came(0.5)] * 3) == 1
    assert widening([came(0.1)] * 16 + [came(0.5)] * 4) > 1


def test_the_factor_would_have_covered_nine_of_ten() -> None:
    rng = random.Random(4)
    # Twice as wide as the ranges assume.
    measured = [came(0.1 + rng.gauss(0, 0.04 / 1.645)) for _ in range(100)]
    factor = widening(measured)
    assert 1.6 < factor < 2.4
    wide = [came(item.measured, factor) for item in measured]
    assert coverage(wide) == pytest.approx(0.9, abs=0.01)
    # Wider ranges do not end their own reason.
    assert widening(wide) == pytest.approx(factor)


def test_the_factor_has_a_limit_also_for_ranges_without_width() -> None:
    nothing = MeasuredPrediction(SHARE, 0.1, 0.1, 0.1, 1.0, 0.2)
    assert widening([nothing] * LEAST) == MOST_WIDENING


def test_only_the_newest_count() -> None:
    assert widening([came(0.1)] * 100 + [came(0.9)] * 400) == 1


def test_times_widen_on_a_logarithmic_scale() -> None:
    change = PredictedChange(TTFT, 1.0, 0.5, -0.5, -0.6, -0.375, -0.5)
    wide = widened(change, 2.0)
    assert math.log1p(wide.low) - math.log1p(-0.5) == pytest.approx(2 * (math.log1p(-0.6) - math.log1p(-0.5)))
    assert -1 < wide.low < -0.6
    assert wide.high > -0.375
    assert widened(change, 1.0).low == pytest.approx(change.low)
    ratio = MeasuredPrediction(RATIO, -0.5, wide.low, wide.high, 2.0, change.low)
    assert ratio.needed == pytest.approx(1.0)


def test_changes_of_live_figures_are_those_of_predictions() -> None:
    before = WindowFigures(figures={ON_TIME.name: 0.8, TTFT.name: 2.0, "hits": None})
    after = WindowFigures(figures={ON_TIME.name: 0.9, TTFT.name: 1.5})
    assert change_between(ON_TIME, before, after) == pytest.approx(0.1)
    assert change_between(TTFT, before, after) == pytest.approx(-0.25)
    assert change_between(next(item for item in OBJECTIVES if item.name == "hits"), before, after) is None
