"""The memory benchmark: its slope, its warm-up, and a load that two cores can serve."""

from __future__ import annotations

import pytest

from bench.installation.memory import MAX_INPUT, MAX_OUTPUT, MIN_WARM_MIN, PASS_S, QPS, short_rows, slope, warm_min


def test_slope_is_that_of_the_regression_line() -> None:
    assert slope([(at, 100.0 + 0.25 * at + (at % 2)) for at in range(100)]) == pytest.approx(0.25, abs=0.01)


def test_warm_up_takes_at_most_half_of_a_short_run() -> None:
    assert warm_min(10.0) == 5.0
    assert warm_min(60.0) == MIN_WARM_MIN
    assert warm_min(120.0) == 30.0


def test_requests_are_short_and_arrive_at_the_configured_rate() -> None:
    rows = short_rows()
    assert len(rows) / (rows[-1].timestamp / 1000) == pytest.approx(QPS, rel=0.2)
    assert len(rows) == QPS * PASS_S
    assert max(row.input_length for row in rows) <= MAX_INPUT
    assert max(row.output_length for row in rows) <= MAX_OUTPUT
