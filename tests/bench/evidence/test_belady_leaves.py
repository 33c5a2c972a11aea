from __future__ import annotations

from functools import cache, partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.evidence.belady_leaves import BeladyLeaves
from simulator.engine_cache.lru_leaves import LruLeaves
from simulator.engine_cache.prefix_cache import PrefixCache
from tests.simulator.engine_cache.token_paths import Path, keys_of, loop, misses, random_paths


def fewest_misses(paths: list[Path], capacity: int) -> int:
    """Return the minimum number of misses over all choices of leaves to evict."""

    @cache
    def best(number: int, held: frozenset[Path]) -> int:
        if number == len(paths):
            return 0
        prefixes = [paths[number][: depth + 1] for depth in range(len(paths[number]))]
        missed = sum(prefix not in held for prefix in prefixes)
        return missed + min(best(number + 1, after) for after in _rooms(held.union(prefixes), prefixes))

    def _rooms(held: frozenset[Path], spared: list[Path]) -> set[frozenset[Path]]:
        rooms, reached = {held}, set()
        while rooms:
            room = rooms.pop()
            if len(room) <= capacity:
                reached.add(room)
                continue
            inner = {item[:-1] for item in room}
            rooms |= {room - {leaf} for leaf in room if leaf not in inner and leaf not in spared}
        return reached

    return best(0, frozenset())


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=3), min_size=1, max_size=9), st.integers(3, 5))
@settings(deadline=None, max_examples=40)
def test_no_other_eviction_order_has_fewer_misses(prompts: list[list[int]], capacity: int) -> None:
    paths = [tuple(prompt) for prompt in prompts]
    chained = [keys_of(path) for path in paths]
    assert misses(chained, capacity, partial(BeladyLeaves, paths=chained)) == fewest_misses(paths, capacity)


@pytest.mark.parametrize(("capacity", "length"), [(8, 2), (12, 4), (20, 19), (40, 5)])
def test_belady_misses_once_per_phase_in_the_loop_of_theorem_4(capacity: int, length: int) -> None:
    paths = loop(capacity, length, 6)
    assert misses(paths, capacity, partial(BeladyLeaves, paths=paths)) == capacity + 5


def test_belady_has_fewer_misses_than_lru() -> None:
    paths = random_paths(3, 300)
    assert misses(paths, 20, partial(BeladyLeaves, paths=paths)) < misses(paths, 20, LruLeaves)


def test_unexpected_path_raises() -> None:
    known = PrefixCache(4, partial(BeladyLeaves, paths=[(1, 2)]))
    with pytest.raises(ValueError, match="insertion 0 is not the one"):
        known.insert((1, 2, 3))
    known.insert((1, 2))
    with pytest.raises(ValueError, match="insertion 1 is not the one"):
        known.insert((1, 2))


def test_pinned_leaves_are_not_evicted() -> None:
    paths = [(1,), (2,), (3,), (1,), (4,), (5,)]
    cache = PrefixCache(2, partial(BeladyLeaves, paths=paths))
    cache.insert((1,))
    cache.insert((2,))
    cache.pin((2,))
    assert cache.insert((3,)) == [1]
    cache.pin((3,))
    assert cache.insert((1,)) == []
    cache.unpin((2,))
    cache.check()
    assert cache.insert((4,)) == [2]
    cache.clear()
    cache.check()
