"""The countdown of a draining engine: remaining work, its age, and the estimated duration."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.fleet.drain_progress import WINDOW_S, DrainMeter, DrainProgress, EngineLeft

START = 1000.0


def meter_of(points: list[tuple[float, int]], state: str = "draining") -> DrainMeter:
    meter = DrainMeter()
    for after, left in points:
        meter.take(START + after, [EngineLeft("a", state, START, left)])
    return meter


def test_engine_that_accepts_requests_has_no_countdown() -> None:
    assert meter_of([(0, 5)], "serving").progress("a") is None
    assert DrainMeter().progress("a") is None


def test_completion_rate_gives_the_estimate() -> None:
    assert meter_of([(0, 10), (2, 8), (4, 6)]).progress("a") == DrainProgress(6, 4.0, 6.0)


def test_no_completed_request_means_no_estimate() -> None:
    assert meter_of([(0, 3), (5, 3)]).progress("a") == DrainProgress(3, 5.0, None)


def test_empty_engine_is_done() -> None:
    assert meter_of([(0, 3), (1, 0)]).progress("a") == DrainProgress(0, 0.0, 0.0)


def test_only_the_last_30_seconds_count() -> None:
    points = [(0.0, 100), (1.0, 10)] + [(float(after), 10) for after in range(2, 60)] + [(60.0, 9)]
    progress = meter_of(points).progress("a")
    assert progress is not None and progress.about_s is not None
    assert progress.about_s == pytest.approx(9 * WINDOW_S, rel=0.1)


def test_engine_back_in_service_or_deleted_has_no_countdown() -> None:
    meter = meter_of([(0, 4), (1, 2)])
    meter.take(START + 2, [EngineLeft("a", "serving", START + 2, 2)])
    assert meter.progress("a") is None
    meter.take(START + 3, [EngineLeft("a", "draining", START + 3, 2)])
    assert meter.progress("a") == DrainProgress(2, 0.0, None)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=200), st.floats(0.05, 5.0))
def test_countdown_is_never_negative(left: list[int], step_s: float) -> None:
    falling = sorted(left, reverse=True)
    progress = meter_of([(index * step_s, remaining) for index, remaining in enumerate(falling)]).progress("a")
    assert progress is not None
    assert progress.longest_s >= 0
    assert progress.about_s is None or progress.about_s >= 0
    assert progress.left >= falling[-1]
