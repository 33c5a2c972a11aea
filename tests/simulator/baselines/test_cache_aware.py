from routing.values import reasons
from simulator.baselines.cache_aware import SglangCacheAware, VllmCacheAware
from tests.routing.pools import busy, choice_of, chosen_by, pool, request

LONG = range(20)


def test_a_long_match_is_followed_while_loads_are_even() -> None:
    router, asked = pool(size=3), request(1, LONG)
    router.blocks_stored("e-02", asked.keys[:11])
    busy(router, "e-02", requests=32)
    choice = choice_of(router, SglangCacheAware(), asked)
    assert (choice.target, choice.reason) == (1, reasons.LONG_MATCH)


def test_uneven_loads_take_precedence_over_matches() -> None:
    router, asked = pool(size=3), request(1, LONG)
    router.blocks_stored("e-02", asked.keys)
    for engine_id, requests in (("e-01", 1), ("e-02", 33), ("e-03", 0)):
        busy(router, engine_id, requests=requests)
    choice = choice_of(router, SglangCacheAware(), asked)
    assert (choice.target, choice.reason) == (2, reasons.FEWEST_REQUESTS)


def test_both_spread_limits_must_be_exceeded() -> None:
    router, asked = pool(size=2), request(1, LONG)
    router.blocks_stored("e-01", asked.keys)
    busy(router, "e-01", requests=140)
    busy(router, "e-02", requests=100)
    assert chosen_by(router, SglangCacheAware(relative_spread=1.5), asked) == "e-01"
    assert chosen_by(router, SglangCacheAware(relative_spread=1.3), asked) == "e-02"


def test_without_a_long_match_the_engine_that_was_sent_least_is_chosen() -> None:
    router = pool(size=3)
    asked = request(9, LONG)
    for number, (excluded, blocks) in enumerate([({"e-02", "e-03"}, 9), ({"e-01", "e-03"}, 8)]):
        sent = request(number, range(100 * number, 100 * number + blocks))
        router.place(sent, 0.0, hold=False, excluded=frozenset(excluded))
    router.blocks_stored("e-01", asked.keys[:10])
    choice = choice_of(router, SglangCacheAware(), asked)
    assert (router.view.roster.engine_ids[choice.target], choice.reason) == ("e-03", reasons.SMALLEST_TREE)
    assert [int(candidate.cost) for candidate in choice.candidates] == [0, 8, 9]


def test_loads_are_balanced_only_if_they_differ_by_more_than_a_tenth() -> None:
    router, asked = pool(size=2), request(1, range(20))
    router.blocks_stored("e-01", asked.keys)
    busy(router, "e-01", requests=433)
    busy(router, "e-02", requests=400)
    assert chosen_by(router, VllmCacheAware(), asked) == "e-01"
    assert chosen_by(router, SglangCacheAware(), asked) == "e-02"
