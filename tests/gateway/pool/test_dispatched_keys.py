"""Block keys of requests in progress."""

from __future__ import annotations

from gateway.pool.dispatch_feed import Dispatch, DispatchedKeys


def test_a_dispatch_can_be_taken_once() -> None:
    dispatched = DispatchedKeys(10)
    dispatched.add("r", Dispatch("e", 1, (1, 2)))
    assert dispatched.take("r") == Dispatch("e", 1, (1, 2))
    assert dispatched.take("r") is None


def test_the_oldest_are_evicted_at_the_limit() -> None:
    dispatched = DispatchedKeys(3)
    for number in range(5):
        dispatched.add(str(number), Dispatch("e", 1, ()))
    assert len(dispatched) == 3
    assert dispatched.take("1") is None
    assert dispatched.take("2") is not None
