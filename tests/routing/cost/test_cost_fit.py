import math
from random import Random

import msgspec
import pytest

from routing.cost.cost_fit import LEAST_SPEED, MOST_SPEED, CostFit, FittedCost
from routing.cost.cost_model import DecodeCost, PrefillCost

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
