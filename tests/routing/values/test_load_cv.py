"""Smoothed loads: a queue that is empty for a moment does not make the fleet uneven."""

from __future__ import annotations

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.values.load_cv import IDLE_TOKENS, LoadSmoother, load_cv


def test_the_cv_is_zero_when_idle_and_grows_with_imbalance() -> None:
    assert load_cv([]) == 0.0
    assert load_cv([5.0]) == 0.0
    assert load_cv([0.0, 0.0]) == 0.0
    assert load_cv([200.0, 200.0, 200.0]) == 0.0
    assert load_cv([0.0, 400.0]) == pytest.approx(1.0)
    assert load_cv([0.0, 1.9 * IDLE_TOKENS]) == 0.0


@given(st.lists(st.floats(0, 1e6), max_size=20))
def test_the_cv_is_never_negative(values: list[float]) -> None:
    assert load_cv(values) >= 0.0


def test_the_first_reading_counts_fully_and_later_ones_with_a_time_constant() -> None:
    smoother = LoadSmoother(4.0)
    assert smoother.update({"a": 3.0}, 0.0) == [3.0]
    assert smoother.update({"a": 0.0}, 4.0)[0] == pytest.approx(3.0 * 0.3679, rel=1e-3)


def test_the_interval_of_readings_does_not_matter() -> None:
    often, seldom = LoadSmoother(), LoadSmoother()
    for step in range(17):
        means = often.update({"a": 0.0 if step else 5.0}, step * 0.5)
    seldom.update({"a": 5.0}, 0.0)
    assert means[0] == pytest.approx(seldom.update({"a": 0.0}, 8.0)[0])


def test_equally_loaded_engines_that_are_often_briefly_empty_are_even() -> None:
    rng, smoother = random.Random(3), LoadSmoother()
    single, smoothed = [], []
    for step in range(400):
        readings = {f"e{number}": rng.choice((0.0, 0.0, 1000.0, 2000.0)) for number in range(8)}
        means = smoother.update(readings, step * 0.5)
        if step > 40:
            single.append(load_cv(list(readings.values())))
            smoothed.append(load_cv(means))
    assert max(smoothed) < statistics.fmean(single) / 2
    assert max(smoothed) - min(smoothed) < (max(single) - min(single)) / 2


def test_a_lasting_hotspot_still_shows() -> None:
    smoother = LoadSmoother()
    for step in range(40):
        means = smoother.update({"a": 1e3, "b": 1e3, "c": 1e3, "d": 9e3}, step * 0.5)
    assert load_cv(means) == pytest.approx(1.155, rel=0.01)


def test_an_idle_fleet_eventually_reads_zero() -> None:
    smoother = LoadSmoother()
    smoother.update({"a": 0.0, "b": 2000.0}, 0.0)
    assert load_cv(smoother.update({"a": 0.0, "b": 0.0}, 4.0)) > 0.9
    assert load_cv(smoother.update({"a": 0.0, "b": 0.0}, 40.0)) == 0.0


def test_a_removed_engine_is_forgotten_and_a_stopped_clock_is_harmless() -> None:
    smoother = LoadSmoother()
    smoother.update({"a": 9.0}, 1.0)
    assert smoother.update({"a": 1.0}, 1.0) == [9.0]
    smoother.forget("a")
    smoother.forget("a")
    assert smoother.update({"a": 1.0}, 2.0) == [1.0]
