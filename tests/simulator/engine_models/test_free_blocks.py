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


def _pool(capacity: int) -> BlockPool:
    return BlockPool(capacity, FreeByMarks(capacity, Random(2)))


def _stored(pool: BlockPool, *keys: int) -> list[Block]:
    pool.take(len(keys))
    return [pool.fill(key, parent)[0] for key, parent in zip(keys, (None, *keys), strict=False)]


def test_the_profile_selects_the_free_block_rule() -> None:
    assert isinstance(free_blocks(EngineProfile()), FreeByAge)
    assert isinstance(free_blocks(EngineProfile(eviction="rlt")), FreeByMarks)


def test_a_chain_is_evicted_from_its_tail() -> None:
    pool = _pool(3)
    pool.release(_stored(pool, 1, 11, 111), 0)
    assert [pool.take(1) for _ in range(3)] == [[111], [11], [1]]


def test_a_used_block_outlives_unused_ones() -> None:
    pool = _pool(4)
    for key in (1, 2, 3, 4):
        pool.release(_stored(pool, key), 0)
    pool.release(_stored(pool, 5), 0)
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


_CHAINS = st.lists(st.integers(0, 1), max_size=4)


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
@settings(deadline=None, max_examples=60)
def test_a_chunked_engine_keeps_its_invariants(emit_tokens: bool, moves: list[tuple[object, ...]]) -> None:
    Driver(ChunkedEngine(_SMALL, emit_tokens=emit_tokens)).play(moves)
