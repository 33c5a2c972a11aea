import msgspec
import pytest

from routing.dispatch.cold_start import UNBOUND_WAIT_S
from routing.placements.skywalker import SkyWalker
from routing.values import reasons
from routing.values.decision import CENTRAL, Dispatched, Queued
from routing.values.observation import Completed, FirstToken
from tests.routing.pools import busy, choice_of, chosen_by, engine_of, pool, request

LONG = range(20)


def test_the_free_engine_with_the_longest_match_is_chosen() -> None:
    router, asked = pool(size=3), request(1, LONG)
    for engine_id, held, pending in (("e-01", 20, 1), ("e-02", 4, 0), ("e-03", 9, 0)):
        router.blocks_stored(engine_id, asked.keys[:held])
        busy(router, engine_id, requests=pending)
    choice = choice_of(router, SkyWalker(), asked)
    assert (choice.target, choice.reason) == (2, reasons.FREE_MATCH)
    assert choice_of(router, SkyWalker(pending_limit=1), asked).target == 0


def test_a_request_stays_unbound_while_all_engines_have_pending_requests() -> None:
    router = pool(size=2)
    busy(router, "e-01", requests=2)
    busy(router, "e-02", requests=1)
    choice = choice_of(router, SkyWalker(), request(1, LONG))
    assert (choice.target, choice.reason) == (CENTRAL, reasons.ALL_BUSY)
    assert choice.candidates[0].engine_id == "e-02"


def test_unbound_requests_are_bound_in_order_of_arrival_as_engines_become_free() -> None:
    router = pool("skywalker", size=2)
    first = [router.place(request(number, [number]), 0.0) for number in (1, 2)]
    assert {engine_of(item) for item in first} == {"e-01", "e-02"}
    waiting = [router.place(request(number, LONG, at=0.1), 0.1) for number in (3, 4)]
    assert all(isinstance(item, Queued) and not item.decision.engine_id for item in waiting)
    dispatches = router.observe(FirstToken("request-00000002"), 0.5)
    assert [dispatch.decision.decision_id for dispatch in dispatches if isinstance(dispatch, Dispatched)] == [
        "request-00000003"
    ]
    assert dispatches[0].decision.queued_s == pytest.approx(0.4)  # type: ignore[union-attr]
    router.check()
    router.observe(Completed("request-00000001"), 0.6)
    assert router.unbound(0.7)[0] == 0
    router.check()


def test_requests_unbound_by_choice_are_not_rejected_for_lack_of_an_engine() -> None:
    router = pool("skywalker", size=1)
    for number in (1, 2):
        router.place(request(number, [number]), 0.0)
    assert router.tick(UNBOUND_WAIT_S + 1) == []


def test_a_request_that_cannot_wait_goes_to_the_engine_with_the_fewest_pending() -> None:
    router = pool("skywalker", size=1)
    for number in (1, 2):
        assert engine_of(router.place(request(number, [number]), 0.0, hold=False)) == "e-01"
    router.check()


def test_by_session_one_engine_serves_a_session_until_it_is_busy() -> None:
    router, rule = pool(size=8), SkyWalker(by="session")
    asked = [msgspec.structs.replace(request(number, [number]), session_id="chat") for number in range(1, 21)]
    choices = [choice_of(router, rule, item) for item in asked]
    assert {choice.reason for choice in choices} == {reasons.SESSION_RING}
    (home,) = {choice.candidates[0].engine_id for choice in choices}
    router.blocks_stored("e-01" if home != "e-01" else "e-02", asked[0].keys)
    assert chosen_by(router, rule, asked[0]) == home, "the ring ignores matches"
    busy(router, home, requests=1)
    assert chosen_by(router, rule, asked[0]) != home
    others = {
        chosen_by(router, rule, msgspec.structs.replace(asked[0], session_id=str(number))) for number in range(40)
    }
    assert len(others) > 4, "sessions spread over the engines"


def test_reported_pending_requests_decide_while_the_report_is_fresh() -> None:
    router, rule = pool(size=2), SkyWalker(pending="reported")
    busy(router, "e-01", requests=3)
    router.report("e-01", 0, 0.0)
    router.report("e-02", 1, 0.0)
    assert chosen_by(router, rule, request(1, LONG), now=0.1) == "e-01"
    assert chosen_by(router, SkyWalker(), request(1, LONG), now=0.1) == "e-02"
    assert chosen_by(router, rule, request(1, LONG), now=0.6) == "e-02", "an old report gives way to the own ledger"
