from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.engine_models.block_pool import BlockPool
from simulator.engine_models.chunked import ChunkedEngine
from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_models.free_blocks import Block, FreeByAge, FreeByMarks, free_blocks
from tests.simulator.engine_models.random_work import BLOCK, MOVES, Driver


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


def _pool(capacity: int) -> BlockPool:
    return BlockPool(capacity, FreeByMarks(capacity, Random(2)))


def _keys_stored(pool: BlockPool, *keys: int) -> list[Block]:
    pool.take(len(keys))
    return [pool.fill(key, parent)[0] for key, parent in zip(keys, (None, *keys), strict=False)]


def test_the_profile_selects_the_free_block_rule() -> None:
    assert isinstance(free_blocks(EngineProfile()), FreeByAge)
    assert isinstance(free_blocks(EngineProfile(eviction="rlt")), FreeByMarks)


def test_a_chain_is_evicted_from_its_tail() -> None:
    pool = _pool(3)
    pool.release(_keys_stored(pool, 1, 11, 111), 0)
    assert [pool.take(1) for _ in range(3)] == [[111], [11], [1]]


def test_a_used_block_outlives_unused_ones() -> None:
    pool = _pool(4)
    for key in (1, 2, 3, 4):
        pool.release(_keys_stored(pool, key), 0)
    pool.release(_keys_stored(pool, 5), 0)
    left = [key for key in (1, 2, 3, 4) if key in pool]
    pool.release(pool.share(left[:1]), 0)
    assert set(pool.take(2)) == set(left[1:])


def test_a_redundant_free_copy_of_a_block_is_not_kept() -> None:
    pool = _pool(3)
    pool.take(2)
    (first, new), (second, again) = pool.fill(1), pool.fill(1)
    assert (new, again) == (True, False)
    pool.release([first], 0)
    pool.check()
    assert (pool.free, pool.take(2), 1 in pool) == (2, [], True)
    pool.release([second], 2)
    pool.take(1)
    assert pool.fill(1)[1] is False
    pool.check()
    assert pool.free == 2


@given(st.lists(st.one_of(_CHAINS, st.integers(0, 9)), max_size=40))
@settings(deadline=None)
def test_all_free_blocks_can_be_taken_and_a_parent_outlives_its_children(moves: list[list[int] | int]) -> None:
    pool = _pool(7)
    running: list[list[Block]] = []
    for move in moves:
        if isinstance(move, int):
            if running:
                pool.release(running.pop(move % len(running)), 0)
        else:
            keys = [int("1" + "".join(map(str, move[: depth + 1])), 2) for depth in range(len(move))]
            hits = pool.match(keys) // 2  # what it could share it computes again, so that keys have twins
            if pool.free - pool.free_among(keys[:hits]) >= len(keys) - hits:
                shared = pool.share(keys[:hits])
                pool.take(len(keys) - hits)
                running.append([*shared, *(pool.fill(key, key >> 1 if key > 3 else None)[0] for key in keys[hits:])])
        pool.check()
        for key in range(4, 32):
            assert key not in pool or key >> 1 in pool
    pool.take(pool.free)
    pool.check()


_SMALL = EngineProfile(block_tokens=BLOCK, num_blocks=9, max_running=4, max_batched_tokens=40, eviction="rlt")


@pytest.mark.parametrize("emit_tokens", [True, False])
@given(moves=MOVES)
@settings(deadline=None, max_examples=40)
def test_a_chunked_engine_keeps_its_invariants(emit_tokens: bool, moves: list[tuple[object, ...]]) -> None:
    Driver(ChunkedEngine(_SMALL, emit_tokens=emit_tokens)).play(moves)
