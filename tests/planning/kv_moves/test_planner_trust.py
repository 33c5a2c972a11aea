"""A planner of useless orders backs off, and returns when one is useful."""

from __future__ import annotations

from planning.kv_moves.planner_trust import TRIAL_S, PlannerTrust


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
