"""The certainty of a guardrail verdict, and the time until more certainty is possible."""

import math
from collections.abc import Sequence
from random import Random

import msgspec
import pytest

from planning.documents.guardrail_document import GuardrailDocument
from planning.trials.arm_window import ArmTally, ArmWindow, bucket_end_s, bucket_of, quantile_s, together
from planning.trials.canary import ABORT, KEEP, PROMOTE, STEP, CanaryFacts, plan_canary
from planning.trials.comparison import FINE, LATE, TOO_FEW, TTFT, WORSE, ArmSlice, GuardrailReading, compare
from planning.trials.guardrail_certainty import BROKEN, HOLDS, NOT_YET, GuardrailCertainty, certainty
from tests.planning.arm_data import slices, window

GUARDS = GuardrailDocument()


def facts(given: tuple[ArmSlice, ...], **changes: object) -> CanaryFacts:
    known: dict[str, object] = {
        "steps": (0.05, 0.25), "step": 0, "step_for_s": 120.0, "min_dwell_s": 60.0, "advance": "steps",
        "guardrails": GUARDS, "whole": {"pool": given}, "recent": {"pool": given[-15:]},
    }  # fmt: skip
    return CanaryFacts(**{**known, **changes})  # type: ignore[arg-type]


def test_two_equal_arms_are_never_aborted() -> None:
    aborted = 0
    for seed in range(20):
        made = slices(seed, 60, 40, 4)
        # Every evaluation of two minutes, as the job makes them.
        for end in range(5, 61):
            aborted += plan_canary(facts(made[:end], recent={"pool": made[max(0, end - 22) : end]})).action == ABORT
    assert aborted == 0


@pytest.mark.parametrize(
    ("worse", "guard"),
    [({"slower": 3.0}, "worse_ttft"), ({"failing": 0.5}, "worse_failed"), ({"slower": 3.0}, "worse_late")],
)
def test_a_clear_regression_is_detected_within_a_minute(worse: dict[str, float], guard: str) -> None:
    for seed in range(10):
        made = slices(seed, 30, 40, 4, **worse)
        plan = plan_canary(facts(made, recent={"pool": made[-22:]}))
        assert plan.action == ABORT
        assert guard in {reason.code for reason in plan.reasons}


def test_a_late_regression_is_detected_by_the_recent_window() -> None:
    made = slices(1, 600, 40, 4) + slices(2, 22, 40, 4, failing=0.2)
    assert plan_canary(facts(made, recent={"pool": made[-22:]})).action == ABORT


def test_a_regression_in_a_single_pool_is_detected() -> None:
    well, ill = slices(1, 30, 400, 40), slices(2, 30, 20, 2, failing=0.9)
    plan = plan_canary(facts(well, whole={"a": well, "b": ill}, recent={"a": well, "b": ill}))
    assert plan.action == ABORT
    assert "pool b" in plan.reasons[0].text


def test_few_requests_give_no_verdict() -> None:
    made = slices(1, 5, 40, 1, failing=1.0)
    assert plan_canary(facts(made)).action == KEEP
    assert {reading.verdict for reading in compare(made, GUARDS).readings} == {TOO_FEW}


def test_the_share_grows_after_its_step_time_and_not_before() -> None:
    made = slices(3, 60, 40, 8)
    assert plan_canary(facts(made, step_for_s=59.0)).action == KEEP
    assert plan_canary(facts(made)).action == STEP
    assert plan_canary(facts(made, advance="by_hand")).action == KEEP
    assert plan_canary(facts(made, frozen=True)).action == KEEP
    assert plan_canary(facts(made, step=1)).action == KEEP
    assert plan_canary(facts(made, step=1, advance="promote")).action == PROMOTE


def test_a_frozen_pool_still_aborts_a_bad_canary() -> None:
    assert plan_canary(facts(slices(3, 30, 40, 8, failing=0.5), frozen=True)).action == ABORT


def test_a_suspect_result_that_can_be_chance_does_not_advance() -> None:
    made = slices(3, 15, 40, 8, slower=1.7, bursts=False)
    plan = plan_canary(
        facts(made, guardrails=msgspec.structs.replace(GUARDS, ttft_ratio=1.42, tail_ratio=9.0, late_more=1))
    )
    assert (plan.action, plan.reasons[0].code) == (KEEP, "suspect")


def test_a_better_arm_gets_the_verdict_fine() -> None:
    readings = compare(slices(4, 40, 40, 8, slower=0.4), GUARDS).readings
    assert {reading.verdict for reading in readings} == {FINE}
    assert WORSE not in {reading.verdict for reading in readings}


def test_an_arm_is_not_blamed_for_longer_prompts() -> None:
    rng = Random(5)
    made = [ArmSlice(window(rng, 40, 0.2), window(rng, 20, 0.2, tokens=6000)) for _ in range(30)]
    reading = _ttft(made)
    assert reading.base is not None
    assert reading.tried is not None
    assert reading.tried > 2.5 * reading.base
    assert reading.difference == pytest.approx(1.0, abs=0.1)
    assert reading.verdict == FINE
    slower = [ArmSlice(window(rng, 40, 0.2), window(rng, 20, 0.6, tokens=6000)) for _ in range(30)]
    assert _ttft(slower).difference == pytest.approx(3.0, rel=0.1)
    assert _ttft(slower).verdict == WORSE
    words = " ".join(reason.text for reason in plan_canary(facts(tuple(slower))).reasons)
    assert "times for prompts of equal length, at most 1.30" in words


def test_prompt_lengths_reduce_the_uncertainty_and_equal_ones_change_nothing() -> None:
    rng = Random(6)
    made = [ArmSlice(window(rng, 10, 0.2), window(rng, 10, 0.3)) for _ in range(30)]
    known = _ttft(made)
    equal = _ttft([ArmSlice(_of_one_length(item.base), _of_one_length(item.tried)) for item in made])
    assert _doubt(known) < 0.7 * _doubt(equal)
    assert equal.tried is not None
    assert equal.base is not None
    assert equal.difference == pytest.approx(equal.tried / equal.base)


def _ttft(made: Sequence[ArmSlice]) -> GuardrailReading:
    return next(reading for reading in compare(made, GUARDS).readings if reading.guard == TTFT)


def _doubt(reading: GuardrailReading) -> float:
    assert reading.lower is not None
    assert reading.upper is not None
    return math.log(reading.upper / reading.lower)


def _of_one_length(window: ArmWindow) -> ArmWindow:
    """Return the window as if every prompt had one token."""
    return msgspec.structs.replace(window, size_log_sum=0.0, size_log_squares=0.0, size_ttft_logs=0.0)


def test_windows_add_up() -> None:
    tally = ArmTally()
    for ttft_s in (0.0005, 0.1, 0.1, 1.0, 500.0):
        tally.answered(ttft_s, 100)
    one = tally.window()
    assert one.answered == 5
    assert together([one, ArmWindow(), one]).answered == 10
    assert quantile_s(one, 0.5) == pytest.approx(0.1, rel=0.15)
    assert quantile_s(ArmWindow(), 0.5) is None
    for ttft_s in (0.001, 0.01, 0.3, 7.0):
        assert bucket_end_s(bucket_of(ttft_s) - 1) <= ttft_s * 1.0001 < bucket_end_s(bucket_of(ttft_s)) * 1.001


def test_reasons_name_the_two_sides() -> None:
    names = {"tried": "pool new", "base": "the rest of the service"}
    worse = plan_canary(facts(slices(1, 30, 40, 4, slower=3.0), **names))
    assert worse.action == ABORT
    assert "s in pool new, " in worse.reasons[0].text or "of pool new is" in worse.reasons[0].text
    few = plan_canary(facts(slices(1, 2, 4, 1), **names))
    assert "requests of pool new, " in few.reasons[0].text or "request of pool new, " in few.reasons[0].text
    assert "of the rest of the service; each needs 40" in few.reasons[0].text


def known(reading: GuardrailReading, requests: int = 100, since_s: float = 60.0) -> GuardrailCertainty:
    return certainty(reading, requests=requests, least=40, since_s=since_s)


def late(
    difference: float, doubt: float, limit: float = 0.03, base: float = 0.05, verdict: str = FINE
) -> GuardrailReading:
    tried = base + difference
    return GuardrailReading(LATE, base, tried, difference, difference - doubt, difference + doubt, limit, verdict)


def test_a_guardrail_holds_only_if_the_whole_interval_is_within_the_threshold() -> None:
    assert known(late(0.01, 0.02)).verdict == HOLDS
    assert known(late(0.01, 0.021)).verdict == NOT_YET
    assert known(late(0.06, 0.02, verdict=WORSE)).verdict == BROKEN


def test_four_times_the_requests_halve_the_interval() -> None:
    assert known(late(0.01, 0.04)).wait_s == pytest.approx(3 * 60.0)


def test_intervals_of_zero_shares_narrow_with_the_count() -> None:
    assert known(late(0.0, 0.06, base=0.0)).wait_s == pytest.approx(60.0)


def test_intervals_of_ratios_narrow_on_a_log_scale() -> None:
    ratio = GuardrailReading(TTFT, 0.5, 0.5, 1.0, 1 / 1.3**2, 1.3**2, 1.3, FINE)
    assert known(ratio).wait_s == pytest.approx(3 * 60.0)
    assert known(GuardrailReading(TTFT, 0.5, 0.5, 1.0, 1 / 1.2, 1.2, 1.3, FINE)).verdict == HOLDS
    assert math.isfinite(known(ratio).wait_s or math.nan)


def test_more_requests_cannot_confirm_a_value_beyond_the_threshold() -> None:
    judged = known(late(0.04, 0.05))
    assert (judged.verdict, judged.wait_s, judged.beyond) == (NOT_YET, None, True)


def test_the_wait_with_too_few_requests_is_the_time_of_the_missing_ones() -> None:
    few = GuardrailReading(LATE, 0.1, None, None, None, None, 0.03, TOO_FEW)
    assert known(few, requests=10, since_s=30.0) == GuardrailCertainty(LATE, NOT_YET, 90.0)
    assert known(few, requests=0).wait_s is None
