import pytest

from routing.placements.lbgr import Lbgr
from routing.values.feedback_events import Answered, Bound, Released
from tests.routing.pools import choice_of, chosen_by, pool, request

LONG = range(20)
ASKED = request(1, LONG)


def costs(router: object, placement: Lbgr, now: float) -> dict[str, float]:
    choice = choice_of(router, placement, ASKED, now=now)  # type: ignore[arg-type]
    return {candidate.engine_id: candidate.cost for candidate in choice.candidates}


def test_initial_estimates_are_uncached_tokens_in_thousands() -> None:
    router = pool(size=2)
    router.blocks_stored("e-01", ASKED.keys[:10])
    assert costs(router, Lbgr(cached_s=0.1), 0.0) == pytest.approx({"e-01": 5.12 + 0.512, "e-02": 10.24})


def test_sent_work_is_a_load_that_decays() -> None:
    router, placement = pool(size=2), Lbgr()
    placement.learn(Bound(request(2, range(50, 60)), "e-01", 0, 0.0))
    assert costs(router, placement, 0.0)["e-01"] == pytest.approx(10.24 + 5.12)
    # 0.44 s are 22 intervals of 20 ms: (31/32)^22 = 0.497.
    assert costs(router, placement, 0.44)["e-01"] == pytest.approx(10.24 + 5.12 * (31 / 32) ** 22)


def test_pending_work_can_be_exempt_from_decay() -> None:
    router, placement = pool(size=2), Lbgr(keep_pending=True)
    sent = request(2, range(50, 60))
    placement.learn(Bound(sent, "e-01", 0, 0.0))
    assert costs(router, placement, 60.0)["e-01"] == pytest.approx(10.24 + 5.12)
    placement.learn(Released(sent, "e-01", 60.0, False))
    assert costs(router, placement, 60.0)["e-01"] == pytest.approx(10.24)


def test_a_slow_engine_is_learned_and_avoided() -> None:
    router, placement = pool(size=2), Lbgr()
    for number in range(2, 30):
        engine_id = f"e-{number % 2 + 1:02}"
        sent = request(number, [number, number + 100], at=float(number))
        placement.learn(Bound(sent, engine_id, 0, float(number)))
        took = 4.0 if engine_id == "e-01" else 0.1
        placement.learn(Answered(sent, engine_id, number + took))
    late = 100.0
    assert chosen_by(router, placement, ASKED, now=late) == "e-02"
    assert costs(router, placement, late)["e-01"] > costs(router, placement, late)["e-02"] + 2


@pytest.mark.parametrize("event", [Answered(ASKED, "e-01", 1.0), Released(ASKED, "e-09", 1.0, True)])
def test_feedback_about_unknown_requests_teaches_nothing(event: Answered | Released) -> None:
    router, placement = pool(size=2), Lbgr()
    placement.learn(Bound(request(2), "e-01", 0, 0.0))
    before = costs(router, placement, 1.0)
    placement.learn(event)
    assert costs(router, placement, 1.0) == before


def test_a_failed_request_is_released_without_learning() -> None:
    router, placement = pool(size=2), Lbgr()
    sent = request(2)
    placement.learn(Bound(sent, "e-01", 0, 0.0))
    placement.learn(Released(sent, "e-01", 50.0, False))
    assert costs(router, placement, 50.0) == pytest.approx({"e-01": 10.24, "e-02": 10.24})
