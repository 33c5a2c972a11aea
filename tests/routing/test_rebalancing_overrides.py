import pytest

from routing.rebalancing_overrides import TooManyWidenedError, relieve, sticky_placement_of, widen
from routing.router import Router
from routing.values.decision import Dispatched
from tests.routing.dispatch import test_migration as overloaded
from tests.routing.pools import pool, request


def router() -> Router:
    return pool("dual_map", size=8, params={"adaptive_key": False})


def candidates(made: Router, number: int, blocks: tuple[int, ...]) -> set[str]:
    outcome = made.place(request(number, blocks), 0.0, hold=False)
    assert isinstance(outcome, Dispatched)
    return {candidate.engine_id for candidate in outcome.decision.candidates}


def prefix_of(made: Router, blocks: tuple[int, ...]) -> int:
    keeper = sticky_placement_of(made)
    assert keeper is not None
    return keeper.prefix_of(request(0, blocks))


ONE, OTHER = (11, 22, 33), (44, 55, 66)


def test_a_widened_prefix_keeps_its_candidates_and_gets_one_more() -> None:
    made = router()
    usual = candidates(made, 1, ONE)
    widen(made, {prefix_of(made, ONE): 3})
    wider = candidates(made, 2, ONE)
    assert usual < wider
    assert (len(usual), len(wider)) == (2, 3)


def test_other_prefixes_are_unaffected_and_an_empty_table_reverts_it() -> None:
    made = router()
    usual, before = candidates(made, 1, ONE), candidates(made, 2, OTHER)
    widen(made, {prefix_of(made, ONE): 3})
    assert candidates(made, 3, OTHER) == before
    widen(made, {})
    assert candidates(made, 4, ONE) == usual


def test_a_table_over_its_limits_is_rejected_whole() -> None:
    made = router()
    with pytest.raises(TooManyWidenedError, match="exceed the limit"):
        widen(made, dict.fromkeys(range(1001), 3))
    with pytest.raises(TooManyWidenedError, match="1 to 8"):
        widen(made, {1: 9})
    assert made.view.roster.widened == {}


def test_the_number_of_moved_queued_requests_is_limited() -> None:
    made = overloaded.router()
    overloaded.overload(made)
    waiting = {item: made.waiting.of(made.fleet.target_of(item)) for item in ("e-0", "e-1")}
    hot = max(waiting, key=lambda name: len(waiting[name]))
    relieve(made, hot, 1, 0.0)
    assert made.migration.moved <= 1
    made.check()


def test_relieving_an_unknown_engine_does_nothing() -> None:
    assert relieve(router(), "nobody", 5, 0.0) == []


def test_a_placement_that_can_choose_any_engine_tracks_no_prefixes() -> None:
    assert sticky_placement_of(pool("least_cost")) is None
