"""The ready order returns the same target as a scan of all targets, within its size limit."""

from __future__ import annotations

from math import inf
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.ledger.ready_targets import SCANNED_TARGETS, ReadyOrder
from tests.routing.pools import pool, request

MOMENTS = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0])
CHANGES = st.lists(st.tuples(st.integers(0, 9), MOMENTS, st.integers(0, 1023)), max_size=80)


@given(CHANGES)
def test_the_ready_order_returns_the_same_target_as_a_full_scan(changes: list[tuple[int, float, int]]) -> None:
    ready_at = [inf] * 10
    order = ReadyOrder(ready_at)
    for target, moment, among in changes:
        ready_at[target] = moment
        order.note(target, moment)
        order.check()
        known = [(at, number) for number, at in enumerate(ready_at) if at != inf and among >> number & 1]
        assert order.first(among) == min(known, default=(inf, -1))[1]
        order.check()


def test_a_target_that_stopped_accepting_is_skipped() -> None:
    ready_at = [0.0, 1.0]
    order = ReadyOrder(ready_at)
    ready_at[0] = inf
    assert order.first(0b11) == 1
    assert order.first(0b01) == -1


@pytest.mark.parametrize("size", [SCANNED_TARGETS, SCANNED_TARGETS + 1])
def test_a_pool_of_any_size_sends_a_new_prompt_to_the_engine_with_the_shortest_wait(size: int) -> None:
    router, rng = pool(size=size, decode_weight=0.0), Random(5)
    assert (router.view.load.ready_order is None) == (size == SCANNED_TARGETS)
    for number in range(3 * size):
        asked = request(number, range(1000 * number, 1000 * number + rng.randrange(1, 8)), at=number * 0.001)
        least = min(router.view.load.ready_at)
        choice = router._dispatcher.placement.choose(asked, router.view, asked.arrived_s, rng)
        assert router.view.load.ready_at[choice.target] == least
        router.place(asked, asked.arrived_s, hold=number % 3 == 0)
    router.check()


def test_an_excluded_engine_is_skipped_in_a_large_pool() -> None:
    router = pool(size=SCANNED_TARGETS + 2)
    gone = frozenset(router.view.roster.engine_ids[:SCANNED_TARGETS])
    outcome = router.place(request(1), 0.0, hold=False, excluded=gone)
    assert outcome.decision.engine_id not in gone  # type: ignore[union-attr]
