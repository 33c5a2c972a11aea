"""Leading blocks that are repeatedly loaded from another node are replicated; others are not.

A planner of useless orders backs off, and returns when one is useful.
"""

from __future__ import annotations

import random

import pytest

from planning.kv_moves import replication
from planning.kv_moves.compression_advice import MEASURED, compression_advice
from planning.kv_moves.kv_move import REPLICATE
from planning.kv_moves.planner_trust import TRIAL_S, PlannerTrust
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


@pytest.mark.parametrize(("disk_busy", "ratio"), [*MEASURED, (0.0, 1.04), (0.695, 0.90), (1.0, 0.84)])
def test_the_latency_ratio_is_interpolated_between_measurements(disk_busy: float, ratio: float) -> None:
    assert compression_advice(disk_busy).latency_ratio == pytest.approx(ratio)


def test_only_saturated_disks_justify_compression() -> None:
    assert not compression_advice(0.3).pays
    assert not compression_advice(0.5).pays
    assert compression_advice(0.65).pays


def test_a_planner_is_trusted_until_its_orders_are_mostly_useless() -> None:
    trust = PlannerTrust()
    assert trust.may_ask(0.0)
    times = 0
    while not trust.backs_off:
        trust.judged(False)
        times += 1
        assert times < 50
    assert 10 <= times <= 15
    assert (trust.useful, trust.useless) == (0, times)


def test_a_distrusted_planner_can_try_occasionally() -> None:
    trust = PlannerTrust()
    for _ in range(30):
        trust.judged(False)
    asked = [trust.may_ask(now) for now in (0.0, 1.0, TRIAL_S - 1, TRIAL_S, TRIAL_S + 1, 2 * TRIAL_S)]
    assert asked == [True, False, False, True, False, True]


def test_useful_orders_restore_trust() -> None:
    trust = PlannerTrust()
    for _ in range(30):
        trust.judged(False)
    times = 0
    while trust.backs_off:
        trust.judged(True)
        times += 1
    assert 2 <= times <= 4
    assert trust.may_ask(0.0)
    assert trust.may_ask(0.1)


def test_one_useful_order_in_two_is_sufficient() -> None:
    trust = PlannerTrust()
    for number in range(200):
        trust.judged(number % 2 == 0)
        assert not trust.backs_off
