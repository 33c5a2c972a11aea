"""Leading blocks that are repeatedly loaded from another node are replicated; others are not."""

from __future__ import annotations

import random

import pytest

from planning.kv_moves import replication
from planning.kv_moves.kv_move import REPLICATE
from planning.kv_moves.replication import HALF_LIFE_S, STRIDE, HotLoads
from tests.planning.kv_moves.test_prefetch import KEYS, MIB, loads

FAR = loads(b=100)
"""From the other node a block takes twice as long as from the own one."""
for _ in range(50):
    FAR.loaded("e-01", "b", 10, 10 * MIB, 1.0, 0.0)
    FAR.loaded("e-01", "a", 10, 10 * MIB, 0.01, 0.0)


def test_the_third_load_of_a_prefix_triggers_a_replica() -> None:
    hot = HotLoads()
    assert hot.loaded(KEYS[:40], "a", "b", FAR, 0.0) is None
    assert hot.loaded(KEYS[:40], "a", "b", FAR, 1.0) is None
    move = hot.loaded(KEYS[:40], "a", "b", FAR, 2.0)
    assert move is not None
    assert (move.planner, move.source, move.target, move.keys) == (REPLICATE, "b", "a", KEYS[:40])
    assert move.seconds == FAR.seconds("a", "b", 40)


def test_the_load_count_is_reset_after_a_replica() -> None:
    hot = HotLoads()
    moves = [hot.loaded(KEYS[:40], "a", "b", FAR, float(second)) for second in range(6)]
    assert [move is not None for move in moves] == [False, False, True, False, False, True]


def test_only_the_common_blocks_of_diverging_prompts_are_hot() -> None:
    hot = HotLoads()
    moves = []
    for number in range(3):
        tail = tuple(range(1000 * (number + 1), 1000 * (number + 1) + 30))
        moves.append(hot.loaded(KEYS[: 3 * STRIDE + 2] + tail, "a", "b", FAR, float(number)))
    move = moves[-1]
    assert moves[:2] == [None, None]
    assert move is not None
    assert move.keys == KEYS[: 3 * STRIDE]


def test_infrequent_loads_do_not_trigger_a_replica() -> None:
    hot = HotLoads()
    for number in range(20):
        assert hot.loaded(KEYS[:40], "a", "b", FAR, number * 4 * HALF_LIFE_S) is None


def test_loads_from_the_local_node_are_not_counted() -> None:
    hot = HotLoads()
    for number in range(20):
        assert hot.loaded(KEYS[:40], "a", "a", FAR, float(number)) is None
    assert len(hot) == 0


def test_nothing_is_replicated_if_the_local_node_is_no_faster() -> None:
    even = loads(b=100)
    for _ in range(50):
        even.loaded("e-01", "a", 10, 10 * MIB, 0.1, 0.0)
        even.loaded("e-01", "b", 10, 10 * MIB, 0.1, 0.0)
    hot = HotLoads()
    assert all(hot.loaded(KEYS[:40], "a", "b", even, number / 100) is None for number in range(100))


def test_a_more_expensive_remote_link_needs_fewer_loads() -> None:
    def until_hot(far_s: float) -> int:
        made = loads(b=100)
        for _ in range(50):
            made.loaded("e-01", "a", 10, 10 * MIB, 0.01, 0.0)
            made.loaded("e-01", "b", 10, 10 * MIB, far_s, 0.0)
        hot = HotLoads()
        return next(number for number in range(1, 200) if hot.loaded(KEYS[:40], "a", "b", made, number / 100))

    assert until_hot(0.1) < until_hot(0.02) < until_hot(0.013)


def test_random_loads_stay_within_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replication, "MAX_COUNTED", 50)
    rng, hot = random.Random(5), HotLoads()
    for number in range(2000):
        first = rng.randrange(20)
        hot.loaded(tuple(range(100 * first + 1, 100 * first + rng.randrange(2, 90))), "a", "b", FAR, number / 10)
        hot.check()
