import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.placements.residual_model import ResidualModel


def test_the_weights_of_a_linear_model_are_recovered() -> None:
    model, rng = ResidualModel(3, forgetting=0.99, prior=100.0), Random(1)
    for _ in range(300):
        features = (rng.random(), rng.random() * 4, 1.0)
        model.update(features, 2.0 * features[0] - 0.5 * features[1] + 3.0)
    assert model.theta == pytest.approx([2.0, -0.5, 3.0], abs=1e-3)
    model.check()


def test_one_feature_with_a_prior_is_a_weighted_mean() -> None:
    model = ResidualModel(1, forgetting=1.0, prior=1.0)
    for observed in (3.0, 6.0):
        model.update((1.0,), observed)
    # Ridge regression: (3 + 6) ÷ (2 + 1 ÷ prior).
    assert model.predict((1.0,)) == pytest.approx(3.0)


def test_faster_forgetting_follows_a_change_faster() -> None:
    slow, fast = (ResidualModel(1, forgetting=number, prior=10.0) for number in (0.992, 0.95))
    for observed in [0.0] * 200 + [1.0] * 20:
        slow.update((1.0,), observed)
        fast.update((1.0,), observed)
    # 1 − λ²⁰ of the way: 15 % and 64 %.
    assert slow.predict((1.0,)) < 0.25
    assert fast.predict((1.0,)) > 0.6


def test_a_non_finite_value_teaches_nothing() -> None:
    model = ResidualModel(2, forgetting=0.95, prior=10.0)
    for observed in (math.nan, math.inf):
        model.update((1.0, 2.0), observed)
    assert model.theta == [0.0, 0.0]


@given(st.lists(st.tuples(st.floats(0, 20), st.floats(0, 100), st.floats(-50, 500)), max_size=60), st.integers(0, 3))
def test_the_covariance_stays_symmetric_and_bounded(seen: list[tuple[float, float, float]], silence: int) -> None:
    model = ResidualModel(4, forgetting=0.95, prior=10.0)
    for hit, load, observed in seen:
        model.update((hit, 20 - hit, load, 1.0), observed)
    for _ in range(silence * 500):
        model.update((0.0, 0.0, 0.0, 1.0), 1.0)
    model.check()
