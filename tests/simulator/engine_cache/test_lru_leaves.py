from __future__ import annotations

import pytest

from simulator.engine_cache.lru_leaves import LruLeaves
from simulator.engine_cache.prefix_cache import PrefixCache
from tests.simulator.engine_cache.token_paths import loop, misses


@pytest.mark.parametrize(("capacity", "length"), [(8, 2), (12, 4), (20, 19), (40, 5)])
def test_in_theorem_4s_loop_every_leaf_of_every_phase_is_missed(capacity: int, length: int) -> None:
    phases = 6
    missed = misses(loop(capacity, length, phases), capacity, LruLeaves)
    assert missed == capacity + (phases - 1) * (capacity - length + 1)


def test_with_one_more_block_nothing_is_missed_after_the_first_round() -> None:
    assert misses(loop(12, 4, 6), 13, LruLeaves) == 13


def test_the_check_detects_a_parent_evictable_before_its_child() -> None:
    cache = PrefixCache(4)
    cache.insert((1, 2))
    cache._eviction.lock((1,))  # type: ignore[attr-defined]  # only a fault inside can bring this about
    with pytest.raises(AssertionError, match="neither pinned nor in the order"):
        cache.check()
