"""The certainty of a guardrail verdict, and the time until more certainty is possible."""

from __future__ import annotations

import math

import pytest

from planning.trials.comparison import FINE, LATE, TOO_FEW, TTFT, WORSE, GuardrailReading
from planning.trials.guardrail_certainty import BROKEN, HOLDS, NOT_YET, GuardrailCertainty, certainty


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
