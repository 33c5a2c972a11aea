import math
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routing.cost.cost_fit import LEAST_SPEED, MOST_SPEED, CostFit, FittedCost
from routing.cost.cost_model import DecodeCost, PrefillCost
from routing.cost.nonnegative_fit import NonNegativeFit, RunningMedian

TRUE = PrefillCost(0.03, 0.2e-3, 8e-9, 5e-6)
REFERENCES = ((500, 0), (4000, 2048), (20_000, 0))


def prompts(count: int, seed: int = 1) -> list[tuple[int, int]]:
    rng = Random(seed)
    lengths = [min(max(int(rng.lognormvariate(8.5, 1)), 16), 60_000) for _ in range(count)]
    return [(length, rng.choice([0, length // 1024 * 512])) for length in lengths]


def learned(count: int = 300, *, speeds: dict[str, float] | None = None, noise: float = 0.0) -> CostFit:
    rng, fit = Random(7), CostFit(PrefillCost(), DecodeCost())
    names = sorted(speeds or {"a": 1.0})
    for prompt, hit in prompts(count):
        engine = rng.choice(names)
        seconds = TRUE.seconds(prompt, hit) / (speeds or {}).get(engine, 1.0) * math.exp(rng.gauss(0, noise))
        assert fit.prefilled(engine, prompt, hit, seconds)
    return fit


def test_the_fit_learns_an_engine_unlike_the_policys_cost() -> None:
    fitted = learned().fitted()
    assert fitted.better
    for prompt, hit in REFERENCES:
        assert fitted.prefill.seconds(prompt, hit) == pytest.approx(TRUE.seconds(prompt, hit), rel=0.03)


def test_noise_of_thirty_percent_leaves_a_few_percent_of_error() -> None:
    fitted = learned(1500, noise=0.3).fitted()
    for prompt, hit in REFERENCES:
        assert fitted.prefill.seconds(prompt, hit) == pytest.approx(TRUE.seconds(prompt, hit), rel=0.15)


def test_engines_of_different_speeds_are_learned_separately() -> None:
    true = {"a": 1.0, "b": 0.5, "c": 2.0}
    fitted = learned(1500, speeds=true, noise=0.1).fitted()
    for name, speed in true.items():
        expected = fitted.prefill.seconds(4096, 0) / fitted.speeds[name]
        assert expected == pytest.approx(TRUE.seconds(4096, 0) / speed, rel=0.15)


def test_speeds_stay_within_their_bounds() -> None:
    fit = CostFit(PrefillCost(), DecodeCost())
    for turn in range(400):
        fit.prefilled("ordinary", 4096, 0, 0.5)
        fit.prefilled(("slow", "fast")[turn % 2], 4096, 0, (400.0, 0.001)[turn % 2])
    speeds = fit.fitted().speeds
    assert speeds["slow"] >= LEAST_SPEED
    assert speeds["fast"] <= MOST_SPEED


def test_a_declared_speed_is_factored_out_before_learning() -> None:
    fit = CostFit(PrefillCost(), DecodeCost())
    for prompt, hit in prompts(200):
        fit.prefilled("twice", prompt, hit, TRUE.seconds(prompt, hit) / 2, speed=2.0)
    fitted = fit.fitted()
    assert fitted.prefill.seconds(4000, 0) == pytest.approx(TRUE.seconds(4000, 0), rel=0.03)
    assert fitted.speeds["twice"] == pytest.approx(1.0, abs=0.1)


def test_the_fit_is_not_better_with_few_samples_or_a_correct_policy() -> None:
    assert not learned(40).fitted().better
    fit = CostFit(TRUE, DecodeCost())
    for prompt, hit in prompts(300):
        fit.prefilled("a", prompt, hit, TRUE.seconds(prompt, hit))
    assert not fit.fitted().better


@pytest.mark.parametrize(
    ("prompt", "hit", "seconds"),
    [
        (4096, 0, math.nan),
        (4096, 0, math.inf),
        (4096, 0, -0.1),
        (4096, 0, 0.0),
        (4096, 0, 601.0),
        (0, 0, 0.1),
        (4096, 5000, 0.1),
        (4096, -1, 0.1),
        (4096, 0, 1e-6),
    ],
)
def test_impossible_measurements_teach_nothing(prompt: int, hit: int, seconds: float) -> None:
    fit = learned(100)
    before = fit.fitted()
    assert not fit.prefilled("a", prompt, hit, seconds)
    assert fit.fitted() == before


def test_a_new_fit_starts_from_the_known_cost() -> None:
    known = learned().fitted()
    fit = CostFit(PrefillCost(), DecodeCost(), known)
    assert fit.fitted().prefill == known.prefill
    fit.prefilled("a", 4096, 0, TRUE.seconds(4096, 0))
    assert fit.fitted().error == pytest.approx(0, abs=0.05)


def test_decode_steps_are_learned_too() -> None:
    true, rng, fit = DecodeCost(0.03, 0.5e-3, 150e-9), Random(3), CostFit(PrefillCost(), DecodeCost())
    assert fit.fitted().decode is None
    for _ in range(300):
        batch = rng.uniform(1, 60)
        context = batch * rng.uniform(1000, 20_000)
        assert fit.decoded(batch, context, true.seconds(batch, context))
    decode = fit.fitted().decode
    assert decode is not None
    assert decode.seconds(30, 200_000) == pytest.approx(true.seconds(30, 200_000), rel=0.03)
    for wrong in (math.nan, -1.0, 0.0, 61.0):
        assert not fit.decoded(4, 1000, wrong)


def test_removed_engines_are_forgotten() -> None:
    fit = learned(200, speeds={"a": 1.0, "b": 2.0})
    fit.keep(frozenset({"b"}))
    assert set(fit.fitted().speeds) == {"b"}


def test_a_learned_cost_round_trips() -> None:
    fitted = learned(100).fitted()
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(fitted), type=FittedCost) == fitted


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


def test_the_reference_prompt_costs_as_documented_in_the_model_notes() -> None:
    cost = PrefillCost()
    assert cost.seconds(9_585, 0) == pytest.approx(0.87, abs=0.005)
    assert cost.seconds(20_480, 0) == pytest.approx(2.07, abs=0.005)


def test_a_full_hit_still_computes_its_last_token() -> None:
    assert PrefillCost().seconds(1_000, 1_000) > PrefillCost().base_s


@given(st.integers(1, 200_000), st.data())
def test_more_hits_never_cost_more(prompt_tokens: int, data: st.DataObject) -> None:
    few = data.draw(st.integers(0, prompt_tokens - 1))
    many = data.draw(st.integers(few, prompt_tokens - 1))
    assert PrefillCost().seconds(prompt_tokens, many) <= PrefillCost().seconds(prompt_tokens, few) + 1e-9
