from __future__ import annotations

from itertools import product
from random import Random

import pytest

from bench.engines.profile.profile_fit import PrefillSample, StepSample, fit_non_negative, fit_profile
from simulator.engine_models.engine_profile import EngineProfile

_PROMPTS = [(length, hit) for length in (100, 1000, 5000, 20_000) for hit in (0, length // 2, length - 1)]


def exact_samples(profile: EngineProfile, noise: float = 0.0) -> tuple[list[PrefillSample], list[StepSample]]:
    rng = Random(4)
    prefills = [
        PrefillSample(length, hit, profile.prefill_s(length, hit) * (1 + rng.uniform(-noise, noise)))
        for length, hit in _PROMPTS
    ]
    steps = [
        StepSample(batch, batch * context, profile.step_s(batch, batch * context) * (1 + rng.uniform(-noise, noise)))
        for batch, context in product((1, 4, 32), (100, 5000))
    ]
    return prefills, steps


def test_exact_times_recover_every_parameter() -> None:
    profile = EngineProfile()
    fit = fit_profile(*exact_samples(profile))
    assert fit.figures == {name: pytest.approx(getattr(profile, name), rel=1e-6) for name in fit.figures}
    assert max(map(abs, [*fit.prefill_errors, *fit.step_errors])) < 1e-9


def test_noise_changes_the_fit_little_and_is_reported() -> None:
    profile = EngineProfile()
    fit = fit_profile(*exact_samples(profile, noise=0.05))
    fitted = EngineProfile(**fit.figures)
    for length, hit in _PROMPTS:
        assert fitted.prefill_s(length, hit) == pytest.approx(profile.prefill_s(length, hit), rel=0.06)
    assert 0.005 < sum(map(abs, fit.prefill_errors)) / len(fit.prefill_errors) < 0.05
    assert "12 prefills fitted within" in fit.summary


def test_no_parameter_is_negative() -> None:
    rows = [[1.0, float(x)] for x in range(1, 9)]
    falling = [10.0 - x for x in range(1, 9)]
    base, slope = fit_non_negative(rows, falling)
    assert slope == 0.0
    assert min(falling) < base < max(falling)


def test_parameter_without_samples_is_zero() -> None:
    assert fit_non_negative([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]], [2.0, 4.0, 6.0]) == [pytest.approx(2.0), 0.0]


@pytest.mark.parametrize(("rows", "targets"), [([[1.0, 2.0]], [1.0]), ([[1.0], [1.0]], [1.0, 0.0]), ([], [])])
def test_too_few_or_impossible_times_are_rejected(rows: list[list[float]], targets: list[float]) -> None:
    with pytest.raises(ValueError, match=r"cannot fit|above 0"):
        fit_non_negative(rows, targets)
