import pytest

from routing.values.decision import Dispatched, Queued
from simulator.engine_models.engine_profile import profile_named
from simulator.regions.baselines import LeastLoad, SglangCacheAwareRegions
from simulator.regions.policies import POLICIES
from tests.routing.pools import engines, request
from tests.routing.regions.views import engine, view


def test_least_load_chooses_the_fewest_requests_and_the_first_on_a_tie() -> None:
    assert LeastLoad().choose(view(engine(1, in_flight=2), engine(2, in_flight=1), engine(3, in_flight=1))).engine == 1


def test_sglang_chooses_the_first_of_the_longest_matches_whatever_its_load() -> None:
    choice = SglangCacheAwareRegions().choose(view(engine(1, matched=600, in_flight=30), engine(2, matched=600)))
    assert (choice.engine, choice.reason) == (0, "longest_match")


def test_sglang_chooses_the_smallest_tree_without_a_match_above_half() -> None:
    choice = SglangCacheAwareRegions().choose(view(engine(1, matched=500, indexed=900), engine(2, indexed=100)))
    assert (choice.engine, choice.reason) == (1, "smallest_tree")


def test_sglang_balances_once_loads_differ_by_more_than_32() -> None:
    assert SglangCacheAwareRegions().choose(view(engine(1, matched=900, in_flight=33), engine(2))).engine == 1
    assert SglangCacheAwareRegions().choose(view(engine(1, matched=900, in_flight=32), engine(2))).engine == 0


@pytest.mark.parametrize(
    ("system", "sent", "pending", "room"),
    [
        ("sglang_central", 99, 9, True),
        ("sglang_pending", 99, 0, True),
        ("sglang_pending", 1, 1, False),
        ("sglang_in_flight_16", 15, 9, True),
        ("sglang_in_flight_16", 16, 0, False),
    ],
)
def test_an_engine_has_room_below_its_limit(system: str, sent: int, pending: int, room: bool) -> None:
    router = POLICIES[system].router("us", profile_named("l4-8b"), 1)
    router.set_engines(engines(1), 0.0)
    for number in range(sent):
        assert isinstance(router.place(request(number, range(10)), 0.0), Dispatched)
    router.report("e-01", pending, 0.0)
    assert isinstance(router.place(request(100, range(10)), 0.0), Dispatched if room else Queued)


def test_a_waiting_request_blocks_later_ones_until_an_engine_has_room() -> None:
    router = POLICIES["skywalker"].router("us", profile_named("l4-8b"), 2)
    router.set_engines(engines(2), 0.0)
    for number, engine_id in enumerate(("e-01", "e-02")):
        router.place(request(number, range(10)), 0.0)
        router.report(engine_id, 1, 0.0)
    # The second request goes to the second engine, because the first one has no room.
    waiting = [request(number, [number]) for number in (3, 4, 5)]
    assert [type(router.place(item, 0.0)) for item in waiting[:2]] == [Queued, Queued]
    router.report("e-02", 0, 0.1)
    assert isinstance(router.place(waiting[2], 0.1), Queued)
    assert [outcome.decision.decision_id for outcome in router.tick(0.1)] == [item.request_id for item in waiting]
