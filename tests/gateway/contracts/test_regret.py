"""Regret: the time that the best other candidate would have saved, and why it was not chosen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.contracts.regret import (
    ADMISSION,
    CAUSES,
    GATEWAY,
    LOAD,
    QUEUE_ORDER,
    SLOW_GATEWAY_S,
    STALE_VIEW,
    TRADE,
    WRONG_INDEX,
    Course,
    RegretOption,
    regret,
    rejection_regret,
)

CHOSEN = RegretOption("e-17", 9216, 2.86, 0.30)
OTHER = RegretOption("e-04", 4608, 0.41, 0.72, 0.11)

seconds = st.floats(0, 1000, allow_nan=False)
options = st.lists(
    st.builds(
        RegretOption,
        st.sampled_from(["e-1", "e-2", "e-3"]),
        st.integers(0, 100_000),
        seconds,
        seconds,
        st.floats(-100, 100, allow_nan=False),
    ),
    min_size=2,
    max_size=3,
)


@st.composite
def courses(draw: st.DrawFn) -> Course:
    before_s = draw(seconds)
    queued_s = before_s + draw(seconds)
    return Course(
        ttft_s=queued_s + draw(seconds),
        queued_s=queued_s,
        compute_s=draw(seconds),
        hit_tokens=draw(st.integers(0, 100_000)),
        before_s=before_s,
        deferred=draw(st.booleans()),
        gateway_s=draw(st.floats(0, before_s / 3)),
        tokenizer_s=draw(st.floats(0, before_s / 3)),
        attempt_s=draw(st.floats(0, before_s / 3)),
        overtaken_s=draw(seconds),
        view_age_s=draw(st.none() | seconds),
    )


@given(options, courses())
def test_parts_are_never_negative_and_add_up_to_the_total(options: list[RegretOption], course: Course) -> None:
    result = regret(options, course)
    assert result is not None
    assert result.seconds >= 0
    assert result.tokens >= 0
    assert all(part >= 0 for part in result.parts.values())
    assert sum(result.parts.values()) == pytest.approx(result.seconds, abs=1e-6)


@given(options, courses())
def test_the_total_is_the_time_that_the_best_other_candidate_would_have_saved(
    options: list[RegretOption], course: Course
) -> None:
    result = regret(options, course)
    assert result is not None
    base_s = result.lost_s if course.deferred else course.before_s
    least_s = min(max(0.0, option.wait_s + option.compute_s + option.drift_s) for option in options[1:])
    assert result.best_ttft_s == pytest.approx(base_s + least_s)
    spared_s = max(0.0, course.ttft_s - result.best_ttft_s)
    assert result.seconds == pytest.approx(spared_s + result.lost_s, abs=1e-3)


def test_a_request_that_waited_for_cache_is_split_by_its_score_terms() -> None:
    """The decision that UX.md draws: 2.73 s, of which 2.03 s were a choice."""
    course = Course(ttft_s=3.97, queued_s=3.36, compute_s=0.61, hit_tokens=6144, view_age_s=4.0)
    result = regret([CHOSEN, OTHER], course)
    assert result is not None
    assert result.seconds == pytest.approx(2.73)
    assert result.parts == pytest.approx(
        {**dict.fromkeys(CAUSES, 0.0), TRADE: 2.03, STALE_VIEW: 0.39, WRONG_INDEX: 0.31}
    )
    assert (result.best_engine_id, result.tokens, result.cause) == ("e-04", 0, TRADE)


def cause_of(course: Course) -> str:
    result = regret([RegretOption("a", 512, 0.1, 0.2), RegretOption("b", 512, 0.1, 0.2)], course)
    assert result is not None
    assert sum(result.parts[cause] > 1e-9 for cause in CAUSES) == 1
    return result.cause


def test_a_wait_that_grew_under_an_old_report_is_attributed_to_a_stale_view() -> None:
    grown = Course(ttft_s=3.3, queued_s=3.1, compute_s=0.2, hit_tokens=512, view_age_s=5.0)
    assert cause_of(grown) == STALE_VIEW


@pytest.mark.parametrize("age_s", [None, 0.06])
def test_a_wait_that_grew_under_a_fresh_view_is_attributed_to_load(age_s: float | None) -> None:
    assert cause_of(Course(ttft_s=3.3, queued_s=3.1, compute_s=0.2, hit_tokens=512, view_age_s=age_s)) == LOAD


def test_missing_blocks_are_attributed_to_a_wrong_index() -> None:
    assert cause_of(Course(ttft_s=1.3, queued_s=0.1, compute_s=1.2, hit_tokens=0, view_age_s=5.0)) == WRONG_INDEX


def test_newer_requests_dispatched_first_are_attributed_to_the_queue_order() -> None:
    overtaken = Course(ttft_s=3.3, queued_s=3.1, compute_s=0.2, hit_tokens=512, overtaken_s=9.0, view_age_s=5.0)
    assert cause_of(overtaken) == QUEUE_ORDER


def test_time_deferred_by_admission_is_attributed_to_admission() -> None:
    deferred = Course(ttft_s=4.3, queued_s=4.1, compute_s=0.2, hit_tokens=512, before_s=4.0, deferred=True)
    assert cause_of(deferred) == ADMISSION


def test_undispatched_time_has_no_cause_if_admission_deferred_nothing() -> None:
    result = regret([CHOSEN, OTHER], Course(6.0 + 3.16, 6.0 + 2.86, 0.30, 9216, before_s=6.0))
    assert result is not None
    assert result.seconds == pytest.approx(2.02 - 0.10, abs=0.01)
    assert result.admission_s == 0


def test_a_slow_gateway_is_named_and_no_engine_is_blamed() -> None:
    prompt = Course(2.65, 0.0, 2.03, 4608)
    slow = Course(2.5 + 2.65, 0.0, 2.03, 4608, before_s=2.5, gateway_s=2.5)
    options = [RegretOption("e-03", 4608, 0.0, 2.03), RegretOption("e-04", 0, 0.3, 2.03)]
    without, result = regret(options, prompt), regret(options, slow)
    assert without is not None
    assert result is not None
    assert (result.cause, result.gateway_s, result.seconds) == (GATEWAY, 2.5, pytest.approx(without.seconds + 2.5))
    assert result.load_s == pytest.approx(without.load_s)
    assert result.best_ttft_s == pytest.approx(2.5 + 2.33)
    alone = regret(options[:1], slow)
    assert alone is not None
    assert (alone.cause, alone.seconds) == (GATEWAY, 2.5)


def test_the_usual_gateway_time_causes_no_regret() -> None:
    usual_s = 0.9 * SLOW_GATEWAY_S
    result = regret([OTHER, CHOSEN], Course(usual_s + 1.13, 0.41, 0.72, 4608, before_s=usual_s, gateway_s=usual_s))
    assert result is not None
    assert (result.seconds, result.cause) == (0, "")


def test_the_best_choice_has_no_regret() -> None:
    result = regret([OTHER, CHOSEN], Course(1.13, 0.41, 0.72, 4608))
    assert result is not None
    assert (result.seconds, result.tokens, result.cause) == (0, 0, "")


def test_without_another_candidate_there_is_no_regret() -> None:
    assert regret([CHOSEN], Course(9.0, 1.0, 1.0, 0)) is None


def test_rejecting_an_on_time_request_is_attributed_to_admission() -> None:
    result = rejection_regret([CHOSEN, OTHER], slack_s=3.5)
    assert result is not None
    assert (result.best_engine_id, result.cause) == ("e-04", ADMISSION)
    assert result.seconds == result.admission_s == pytest.approx(3.5 - 1.24)


def test_rejecting_a_late_request_has_no_regret() -> None:
    result = rejection_regret([CHOSEN, OTHER], slack_s=1.0)
    assert result is not None
    assert (result.seconds, result.cause) == (0, "")
    assert rejection_regret([], 1.0) is None
