"""The circuit breaker: what opens it, what closes it, and consistency of its state."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.settings import BreakerSettings
from gateway.pools.engines.breaker import (
    BROKEN_STREAM,
    CLOSED,
    CONNECT,
    HALF_OPEN,
    HTTP_4XX,
    HTTP_5XX,
    NO_PROGRESS,
    OPEN,
    PAUSED,
    THROTTLED,
    TIMEOUT,
    UNHEALTHY,
    Breaker,
)

SETTINGS = BreakerSettings()


def closed(settings: BreakerSettings = SETTINGS) -> Breaker:
    breaker = Breaker(settings, 0.0)
    breaker.observe_probe(True, "", 0.0)
    assert breaker.state == CLOSED
    return breaker


def test_an_engine_gets_no_work_before_its_first_response() -> None:
    breaker = Breaker(SETTINGS, 0.0)
    assert not breaker.accepts
    assert breaker.reason
    breaker.observe_probe(True, "", 0.1)
    assert breaker.accepts


@pytest.mark.parametrize(("kind", "limit"), [(CONNECT, 3), (TIMEOUT, 3), (HTTP_5XX, 5), (BROKEN_STREAM, 5)])
def test_consecutive_failures_open_the_breaker_at_the_limit(kind: str, limit: int) -> None:
    breaker = closed()
    for count in range(limit - 1):
        breaker.record_failure(kind, 10.0 + count)
    assert breaker.accepts
    breaker.record_failure(kind, 20.0)
    assert breaker.state == OPEN
    assert breaker.since == 20.0
    assert str(limit) in breaker.reason


def test_a_success_between_failures_resets_the_count() -> None:
    breaker = closed()
    for _ in range(10):
        breaker.record_failure(CONNECT, 1.0)
        breaker.record_failure(CONNECT, 1.0)
        breaker.record_success(1.0)
    assert breaker.accepts


def test_the_reason_names_an_unknown_kind_of_failure() -> None:
    with pytest.raises(ValueError, match="http_5xx"):
        closed().record_failure("teapot", 1.0)


def test_a_refused_probe_connection_opens_the_breaker_immediately() -> None:
    breaker = closed()
    breaker.observe_probe(False, "connection refused", 1.0, refused=True)
    assert breaker.state == OPEN


def test_a_second_consecutive_probe_timeout_opens_the_breaker() -> None:
    breaker = closed()
    breaker.observe_probe(False, "timed out", 1.0)
    assert breaker.accepts
    breaker.observe_probe(False, "timed out", 2.0)
    assert breaker.state == OPEN


def test_a_healthy_probe_half_opens_the_breaker_and_a_success_closes_it() -> None:
    breaker = closed()
    breaker.observe_probe(False, "connection refused", 1.0, refused=True)
    breaker.record_success(2.0)
    assert breaker.state == OPEN
    breaker.observe_probe(True, "", 3.0)
    assert breaker.state == HALF_OPEN
    assert "connection refused" in breaker.reason
    breaker.record_success(3.1)
    assert breaker.state == CLOSED
    assert breaker.reason == ""


def test_an_idle_engine_is_closed_by_a_second_healthy_probe() -> None:
    breaker = closed()
    breaker.observe_probe(False, "", 1.0, refused=True)
    breaker.observe_probe(True, "", 3.0)
    breaker.observe_probe(True, "", 3.5)
    assert breaker.state == HALF_OPEN
    breaker.observe_probe(True, "", 4.1)
    assert breaker.state == CLOSED


def test_a_failure_while_half_open_opens_the_breaker_again() -> None:
    breaker = closed()
    breaker.observe_probe(False, "", 1.0, refused=True)
    breaker.observe_probe(True, "", 2.0)
    breaker.record_failure(HTTP_5XX, 2.1)
    assert breaker.state == OPEN


def test_an_engine_with_good_health_and_repeated_errors_is_ejected_longer_each_time() -> None:
    breaker = closed()
    moment = 100.0
    held: list[float] = []
    for _ in range(12):
        for _ in range(5):
            breaker.record_failure(HTTP_5XX, moment)
        assert breaker.outlier
        opened = moment
        while breaker.state == OPEN:
            moment += 1.0
            breaker.observe_probe(True, "", moment)
        held.append(moment - opened)
        breaker.record_success(moment)
    assert held[:3] == [30.0, 60.0, 90.0]
    assert held[-1] == 300.0


def test_an_ejected_engine_that_dies_is_lost_and_returns_without_the_ejection_time() -> None:
    breaker = closed()
    for _ in range(5):
        breaker.record_failure(HTTP_5XX, 1.0)
    breaker.observe_probe(False, "connection refused", 2.0, refused=True)
    assert breaker.lost
    breaker.observe_probe(True, "", 3.0)
    assert breaker.state == HALF_OPEN


def test_each_state_change_is_reported_once() -> None:
    changes: list[str] = []
    breaker = Breaker(SETTINGS, 0.0)
    breaker.on_change = lambda: changes.append(breaker.state)
    breaker.observe_probe(True, "", 0.0)
    for _ in range(7):
        breaker.record_failure(CONNECT, 1.0)
    breaker.observe_probe(True, "", 2.0)
    breaker.record_success(2.0)
    assert changes == [CLOSED, OPEN, HALF_OPEN, CLOSED]


steps = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "connect",
                "timeout",
                "http_5xx",
                "broken_stream",
                "success",
                "stall",
                "hang",
                "probe",
                "unhealthy",
            ]
        ),
        st.booleans(),
        st.booleans(),
        st.floats(0, 40),
    ),
    max_size=80,
)


@given(steps)
def test_no_sequence_of_events_breaks_its_invariants(rows: list[tuple[str, bool, bool, float]]) -> None:
    breaker = Breaker(SETTINGS, 0.0)
    now = 0.0
    for kind, good, refused, pause_s in rows:
        now += pause_s
        before = breaker.state
        if kind == "success":
            breaker.record_success(now)
        elif kind == "stall":
            breaker.record_stall("still", now)
        elif kind == "hang":
            breaker.record_hang("still", now)
        elif kind == "probe":
            breaker.observe_probe(good, "" if good else "silent", now, refused=refused and not good)
        elif kind == "unhealthy":
            breaker.observe_probe(False, "503", now, cause=UNHEALTHY)
        else:
            breaker.record_failure(kind, now)
        breaker.check()
        if before == OPEN and breaker.state != OPEN:
            assert kind == "success" or (kind == "probe" and good)
        if breaker.state != before:
            assert breaker.since == now
    now += SETTINGS.outlier_hold_max_s + 1
    breaker.observe_probe(True, "", now)
    breaker.observe_probe(True, "", now + SETTINGS.trial_s)
    assert breaker.state == CLOSED, "an engine that stays healthy always comes back"


def test_a_stalled_engine_gets_no_work_and_is_not_lost() -> None:
    breaker = closed()
    breaker.record_stall("2 streams have produced nothing", 10.0)
    assert (breaker.state, breaker.cause) == (OPEN, NO_PROGRESS)
    assert breaker.stalled
    assert not breaker.lost


@pytest.mark.parametrize("kind", ["token", "trial"])
def test_one_sign_of_progress_ends_a_suspicion_immediately_every_time(kind: str) -> None:
    breaker = closed()
    for moment in range(10, 60, 5):
        breaker.record_stall("2 streams have produced nothing", float(moment))
        assert not breaker.accepts
        if kind == "token":
            breaker.record_success(moment + 0.1)
        else:
            breaker.observe_probe(True, "", moment + 0.1)
        assert breaker.accepts
        breaker.record_success(moment + 0.2)
        breaker.check()


def test_an_engine_stalled_for_its_hang_limit_is_lost_until_it_makes_progress() -> None:
    changes: list[str] = []
    breaker = closed()
    breaker.on_change = lambda: changes.append(breaker.reason)
    breaker.record_stall("still for 3 s", 10.0)
    breaker.record_hang("still for 300 s", 310.0)
    breaker.record_hang("still for 301 s", 311.0)
    assert (breaker.lost, breaker.stalled, breaker.trips) == (True, True, 1)
    assert changes == ["still for 3 s", "still for 300 s"]
    breaker.check()
    breaker.record_success(320.0)
    assert (breaker.state, breaker.hung) == (CLOSED, False)


def test_failed_connections_and_late_requests_do_not_abandon_running_requests() -> None:
    for kind in (CONNECT, TIMEOUT):
        breaker = closed()
        for _ in range(3):
            breaker.record_failure(kind, 1.0)
        assert (breaker.accepts, breaker.lost) == (False, False)
        breaker.observe_probe(False, "timed out", 2.0)
        assert not breaker.lost
        breaker.observe_probe(False, "timed out", 3.0)
        assert breaker.lost


@pytest.mark.parametrize("cause", [UNHEALTHY, PAUSED])
def test_an_engine_that_reports_itself_unhealthy_gets_no_work_and_is_not_lost(cause: str) -> None:
    breaker = closed()
    for moment in (1.0, 2.0, 3.0):
        breaker.observe_probe(False, "health answered 503", moment, cause=cause)
    assert (breaker.accepts, breaker.lost, breaker.paused) == (False, False, cause == PAUSED)
    breaker.record_success(4.0)
    assert not breaker.accepts, "it says so itself"
    breaker.observe_probe(True, "", 5.0)
    assert breaker.accepts


def test_a_success_restores_a_timed_out_engine_and_not_one_that_refuses_connections() -> None:
    slow, gone = closed(), closed()
    for moment in (1.0, 2.0):
        slow.observe_probe(False, "timed out", moment)
    gone.observe_probe(False, "connection refused", 1.0, refused=True)
    for breaker in (slow, gone):
        assert breaker.lost
        breaker.record_success(3.0)
    assert (slow.accepts, gone.accepts) == (True, False)


def test_consecutive_rejections_open_the_breaker_unless_other_engines_reject_too() -> None:
    alone, like_others = closed(), closed()
    for moment in (1.0, 2.0, 3.0):
        assert alone.accepts
        alone.record_rejection(401, moment, shared=False)
        like_others.record_rejection(401, moment, shared=True)
    assert (alone.state, alone.cause) == (OPEN, HTTP_4XX)
    assert "401" in alone.reason
    assert alone.outlier
    assert not alone.lost
    assert like_others.accepts
    assert like_others.doubted


def test_a_throttled_engine_is_out_for_exactly_the_requested_time_every_time() -> None:
    breaker, now = closed(), 100.0
    for _ in range(3):
        breaker.record_throttle(7.0, now)
        breaker.observe_probe(True, "", now + 6.9)
        assert (breaker.state, breaker.cause) == (OPEN, THROTTLED)
        breaker.observe_probe(True, "", now + 7.0)
        assert breaker.state == HALF_OPEN
        breaker.record_success(now + 7.1)
        assert breaker.state == CLOSED
        now += 8.0


def test_an_error_shared_by_all_engines_is_forgiven() -> None:
    breaker = closed()
    for moment in range(20):
        breaker.record_rejection(404, float(moment), shared=False)
        breaker.forgive(HTTP_4XX, float(moment))
        breaker.record_failure(HTTP_5XX, float(moment))
        breaker.forgive(HTTP_5XX, float(moment))
    assert breaker.state == CLOSED
    assert not breaker.suspect
    breaker.record_throttle(30.0, 30.0)
    breaker.forgive(THROTTLED, 30.0)
    assert breaker.state == CLOSED


@pytest.mark.parametrize("kind", [HTTP_4XX, HTTP_5XX])
def test_an_engine_ejected_for_a_forgiven_error_is_half_open(kind: str) -> None:
    breaker = closed()
    for moment in range(5):
        if kind == HTTP_4XX:
            breaker.record_rejection(404, float(moment), shared=False)
        else:
            breaker.record_failure(kind, float(moment))
    assert breaker.state == OPEN
    breaker.forgive(kind, 5.0)
    assert breaker.state == HALF_OPEN
    breaker.record_success(6.0)
    assert breaker.state == CLOSED
    breaker.check()
