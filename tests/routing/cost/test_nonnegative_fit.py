from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routing.cost.nonnegative_fit import NonNegativeFit, RunningMedian

ANCHORS = [(1.0, 10.0), (1.0, 100.0)]


def feed(fit: NonNegativeFit, truth: tuple[float, ...], count: int = 400, *, seed: int = 1, bad: float = 0.0) -> None:
    rng = Random(seed)
    for _ in range(count):
        features = (1.0, rng.uniform(1, 200))
        seconds = sum(one * other for one, other in zip(truth, features, strict=True))
        fit.learn(features, seconds * (20 if rng.random() < bad else 1))


def test_the_fit_recovers_the_coefficients_of_exact_samples() -> None:
    fit = NonNegativeFit((0.01, 0.001), ANCHORS)
    feed(fit, (0.05, 0.004))
    assert fit.coefficients == pytest.approx((0.05, 0.004), rel=0.01)


def test_one_outlier_in_twenty_samples_barely_moves_the_fit() -> None:
    fit = NonNegativeFit((0.01, 0.001), ANCHORS)
    feed(fit, (0.05, 0.004), 800, bad=0.05)
    for at in (20.0, 150.0):
        assert fit.predict((1.0, at)) == pytest.approx(0.05 + 0.004 * at, rel=0.08)


def test_a_negative_coefficient_is_clamped_to_zero() -> None:
    fit = NonNegativeFit((0.01, 0.001), ANCHORS)
    rng = Random(2)
    for _ in range(400):
        at = rng.uniform(50, 200)
        fit.learn((1.0, at), 0.002 * at - 0.08)
    assert min(fit.coefficients) >= 0
    assert fit.predict((1.0, 150.0)) == pytest.approx(0.22, rel=0.15)


def test_old_engine_behavior_is_forgotten() -> None:
    fit = NonNegativeFit((0.01, 0.001), ANCHORS)
    feed(fit, (0.05, 0.004), 500)
    feed(fit, (0.02, 0.001), 3000, seed=3)
    assert fit.predict((1.0, 100.0)) == pytest.approx(0.12, rel=0.05)


def test_an_unsampled_feature_keeps_its_prior_scaled_to_the_samples() -> None:
    fit = NonNegativeFit((0.01, 0.001), ANCHORS)
    for _ in range(100):
        fit.learn((1.0, 0.0), 0.03)
    assert fit.coefficients[0] == pytest.approx(0.03, rel=0.05)
    assert fit.coefficients[1] == pytest.approx(0.003, rel=0.1)


@pytest.mark.parametrize("prior", [(0.0, 0.0), (-0.1, 1.0), (float("nan"), 1.0)])
def test_an_invalid_prior_is_rejected(prior: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="prior"):
        NonNegativeFit(prior, ANCHORS)


@given(st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_no_samples_make_the_fit_negative_or_infinite(seed: int) -> None:
    rng, fit = Random(seed), NonNegativeFit((0.01, 0.0), ANCHORS)
    for _ in range(100):
        fit.learn((1.0, rng.choice([0.0, 1.0, 1e6])), 10 ** rng.uniform(-4, 2))
        assert all(0 <= coefficient < 1e9 for coefficient in fit.coefficients)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40))
def test_the_median_covers_the_last_values(values: list[float]) -> None:
    median = RunningMedian(7)
    for count, value in enumerate(values, start=1):
        median.add(value)
        last = sorted(values[max(0, count - 7) : count])
        assert median.value(0.0) == last[len(last) // 2]
