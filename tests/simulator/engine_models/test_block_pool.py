from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.engine_models.block_pool import BlockPool
from simulator.engine_models.free_blocks import Block


def _stored(pool: BlockPool, *keys: int) -> list[Block]:
    pool.take(len(keys))
    return [pool.fill(key)[0] for key in keys]


def test_empty_blocks_are_taken_first_and_then_the_longest_free_tail() -> None:
    pool = BlockPool(5)
    one, two = _stored(pool, 1, 11), _stored(pool, 2)
    pool.release(one, 0)
    pool.release(two, 0)
    assert pool.take(4) == [11, 1]
    assert (pool.free, pool.held) == (1, 4)


def test_a_shared_block_is_free_after_its_last_holder_releases_it() -> None:
    pool = BlockPool(3)
    mine = _stored(pool, 1, 2)
    yours = pool.share([1])
    pool.release(mine, 0)
    assert pool.free_among([1, 2]) == 1
    assert pool.take(2) == [2]
    with pytest.raises(ValueError, match="1 blocks are wanted and 0 are free"):
        pool.take(1)
    pool.release(yours, 0)
    assert pool.match([1]) == 1


def test_a_key_is_new_once_and_removed_with_its_last_block() -> None:
    pool = BlockPool(2)
    pool.take(2)
    first, new = pool.fill(1)
    second, again = pool.fill(1)
    assert (new, again) == (True, False)
    pool.release([first], 0)
    pool.release([second], 0)
    assert pool.take(1) == []
    assert pool.take(1) == [1]


def test_unfilled_blocks_are_returned_empty() -> None:
    pool = BlockPool(2)
    pool.take(2)
    pool.release([], 2)
    assert pool.free == 2
    assert pool.take(2) == []


def test_only_free_blocks_are_forgotten() -> None:
    pool = BlockPool(3)
    _stored(pool, 1)
    pool.release(_stored(pool, 2), 0)
    pool.clear()
    assert (1 in pool, 2 in pool, pool.free) == (True, False, 2)
    pool.check()


_CHAINS = st.lists(st.integers(0, 1), max_size=4)


@given(st.lists(st.one_of(_CHAINS, st.integers(0, 9)), max_size=40))
@settings(deadline=None)
def test_a_parent_outlives_its_children(moves: list[list[int] | int]) -> None:
    pool = BlockPool(7)
    running: list[list[Block]] = []
    for move in moves:
        if isinstance(move, int):
            if running:
                pool.release(running.pop(move % len(running)), 0)
        else:
            keys = [int("1" + "".join(map(str, move[: depth + 1])), 2) for depth in range(len(move))]
            hits = pool.match(keys)
            if pool.free - pool.free_among(keys[:hits]) >= len(keys) - hits:
                shared = pool.share(keys[:hits])
                running.append([*shared, *_stored(pool, *keys[hits:])])
        pool.check()
        for key in range(4, 32):
            assert key not in pool or key >> 1 in pool
