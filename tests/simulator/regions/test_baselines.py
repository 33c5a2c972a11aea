from simulator.regions.baselines.least_load import LeastLoad
from simulator.regions.baselines.sglang_cache_aware import SglangCacheAwareRegions
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
