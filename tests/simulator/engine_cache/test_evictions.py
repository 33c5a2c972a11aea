from __future__ import annotations

import random

import pytest

from simulator.engine_cache.evictions import EVICTIONS, UnknownEvictionError, eviction_rule
from simulator.engine_cache.prefix_cache import PrefixCache
from tests.simulator.engine_cache.token_paths import random_paths


@pytest.mark.parametrize("name", EVICTIONS)
def test_the_same_seed_produces_the_same_evictions(name: str) -> None:
    stories = []
    for _ in range(2):
        cache = PrefixCache(15, eviction_rule(name, random.Random(4)))
        stories.append([cache.insert(path) for path in random_paths(1, 200)])
    assert stories[0] == stories[1]


@pytest.mark.parametrize("name", EVICTIONS)
def test_only_the_necessary_blocks_are_evicted(name: str) -> None:
    cache = PrefixCache(15, eviction_rule(name, random.Random(4)))
    for path in random_paths(2, 200):
        before, held = len(cache), cache.match(path)
        evicted = cache.insert(path)
        assert len(evicted) == max(0, before + len(path) - held - 15)
        assert cache.match(path) == len(path)


@pytest.mark.parametrize("name", EVICTIONS)
def test_pinned_blocks_stay_and_blocks_that_do_not_fit_are_skipped(name: str) -> None:
    cache = PrefixCache(4, eviction_rule(name, random.Random(0)))
    cache.insert((1, 2, 3))
    cache.pin((1, 2, 3))
    assert cache.insert((7, 8)) == []
    assert (cache.match((1, 2, 3)), cache.match((7, 8))) == (3, 1)
    assert cache.insert((9,)) == [7]
    cache.check()
    cache.unpin((1, 2, 3))
    assert sorted(cache.insert((4, 5, 6))) == [2, 3, 9]
    assert cache.match((1,)) == 1
    cache.check()
    cache.clear()
    cache.check()
    assert cache.insert((4, 5, 6, 7)) == []


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UnknownEvictionError, match="'mru' is unknown; known are lru, rlt"):
        eviction_rule("mru", random.Random(0))
