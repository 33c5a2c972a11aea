"""Selective pushing, tested through the router."""

import pytest

from routing.policy.dispatch_limit_document import DispatchLimitDocument
from routing.router import Router
from routing.values.decision import Dispatched, Queued
from routing.values.observation import Completed, FirstToken
from tests.routing.pools import engine_of, pool, request

LONG = range(20)


def one_engine(**push: object) -> Router:
    settings = {"dispatch_limit": DispatchLimitDocument(**push), "prefill_window_tokens": 1, "lookahead_s": 0.0}  # type: ignore[arg-type]
    return pool(size=1, **settings)  # type: ignore[arg-type]


def place(router: Router, number: int, now: float) -> Dispatched | Queued:
    outcome = router.place(request(number, range(30 * number, 30 * number + 20), at=now), now)
    assert isinstance(outcome, Dispatched | Queued)
    return outcome


def test_a_prompt_waits_for_memory_and_is_dispatched_when_a_report_shows_room() -> None:
    router = one_engine()
    place(router, 1, 0.0)
    place(router, 2, 0.0)
    router.report("e-01", 0, 0.5, 10_000)
    assert router.observe(FirstToken("request-00000001"), 0.9) == []
    assert router.report("e-01", 0, 1.0, 10_239) == []
    assert [engine_of(item) for item in router.report("e-01", 0, 1.1, 10_240)] == ["e-01"]


def test_dispatches_consume_room_that_the_last_report_still_shows() -> None:
    router = one_engine(mode="pending", report_ttl_s=1.0)
    place(router, 1, 0.0)
    for number in (2, 3):
        place(router, number, 0.0)
    router.report("e-01", 0, 0.5, 15_000)
    assert len(router.observe(FirstToken("request-00000001"), 0.9)) == 1
    assert router.observe(FirstToken("request-00000002"), 1.2) == []
    assert [engine_of(item) for item in router.tick(1.6)] == ["e-01"]


def test_an_empty_engine_never_waits_for_room() -> None:
    router = one_engine()
    router.report("e-01", 0, 0.0, 100)
    assert isinstance(place(router, 1, 0.1), Dispatched)


def test_an_engine_with_pending_requests_gets_no_more() -> None:
    router = pool(size=1, prefill_window_tokens=1_000_000)
    place(router, 1, 0.0)
    router.report("e-01", 1, 0.1)
    assert isinstance(place(router, 2, 0.1), Queued)
    assert len(router.observe(FirstToken("request-00000001"), 0.9)) == 1


def test_by_reported_pending_requests_the_last_report_alone_decides() -> None:
    """SP-P as published (SkyWalker §3.3): neither our prefill window nor a first token changes what is pending."""
    router = one_engine(mode="reported", wait_for_memory=True)
    router.report("e-01", 0, 0.0, 0)
    for number in range(1, 6):
        assert isinstance(place(router, number, 0.1), Dispatched)
    assert router.report("e-01", 2, 0.2, 100_000) == []
    assert isinstance(place(router, 6, 0.2), Queued)
    assert router.observe(FirstToken("request-00000001"), 0.3) == []
    assert router.observe(FirstToken("request-00000002"), 0.3) == []
    assert len(router.report("e-01", 0, 0.4, 0)) == 1
    router.check()


def test_without_a_fresh_report_reported_mode_uses_the_prefill_window() -> None:
    router = one_engine(mode="reported")
    assert isinstance(place(router, 1, 0.0), Dispatched)
    assert isinstance(place(router, 2, 0.0), Queued)
    router.report("e-01", 3, 0.1)
    assert router.tick(0.5) == []
    assert router.next_wake(0.5) == pytest.approx(0.6)
    assert router.observe(FirstToken("request-00000001"), 0.55) == []
    assert len(router.tick(0.6)) == 1


def test_an_expired_report_does_not_block_and_the_load_shows_it() -> None:
    router = pool(size=1, prefill_window_tokens=1_000_000)
    place(router, 1, 0.0)
    router.report("e-01", 3, 0.1)
    place(router, 2, 0.1)
    assert not router.loads(0.5)[0].stepped_down
    assert router.tick(0.5) == []
    wake = router.next_wake(0.5)
    assert wake == pytest.approx(0.6)
    assert [engine_of(item) for item in router.tick(0.61)] == ["e-01"]
    assert router.loads(0.61)[0].stepped_down


def test_the_in_flight_limit_counts_unfinished_requests() -> None:
    router = one_engine(mode="in_flight", in_flight_limit=2)
    assert [type(place(router, number, 0.0)) for number in (1, 2, 3)] == [Dispatched, Dispatched, Queued]
    assert router.observe(FirstToken("request-00000001"), 0.9) == []
    assert len(router.observe(Completed("request-00000001"), 2.0)) == 1
    assert not router.loads(2.0)[0].stepped_down


def test_blind_pushing_holds_nothing_back() -> None:
    router = one_engine(mode="blind")
    router.report("e-01", 9, 0.0, 0)
    assert all(isinstance(place(router, number, 0.0), Dispatched) for number in range(1, 9))


def test_reports_of_unknown_engines_and_impossible_reports_are_harmless() -> None:
    router = one_engine()
    assert router.report("e-99", 1, 0.0) == []
    router.report("e-01", -5, 0.0, -100)
    assert isinstance(place(router, 1, 0.0), Dispatched)
    router.check()
