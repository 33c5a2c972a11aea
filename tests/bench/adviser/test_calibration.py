from __future__ import annotations

import pytest

from bench.adviser.calibration import SWING, day, figures_of
from planning.adviser.prediction import OBJECTIVES, PredictedChange


def prediction(measured: float, low: float = -0.1, high: float = 0.1) -> PredictedChange:
    return PredictedChange(OBJECTIVES[0], 0.5, 0.5, 0.0, low, high, measured)


def test_coverage_counts_ranges_with_a_width() -> None:
    figures = figures_of([prediction(0.0), prediction(0.1), prediction(0.2), prediction(0.0, 0.0, 0.0)])
    assert figures["predictions"] == 3
    assert figures["coverage"] == pytest.approx(2 / 3, abs=1e-4)


def test_a_day_is_busy_in_its_first_half() -> None:
    rows = day(1)
    half = rows[-1].timestamp / 2
    share = sum(row.timestamp < half for row in rows) / len(rows)
    # The integral of the sine over half a period.
    assert share == pytest.approx(0.5 + SWING / 3.1416, abs=0.05)
    assert [row.timestamp for row in rows] == sorted(row.timestamp for row in rows)
