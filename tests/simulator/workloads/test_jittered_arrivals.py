"""Moved requests keep their order and their contents, and equal seeds move them equally."""

from __future__ import annotations

import pytest

from simulator.workloads.arrival_pattern import ArrivalPattern
from simulator.workloads.conversation_like import generate
from simulator.workloads.jittered_arrivals import jittered_arrivals
from simulator.workloads.prepared_workload import Workload

ARRIVALS = Workload(generate(200, 3)).arrivals(5.0, 2.0)


@pytest.mark.parametrize("jitter_s", [0.01, 0.5, 60.0])
def test_requests_keep_their_order_and_move_no_further(jitter_s: float) -> None:
    moved = jittered_arrivals(ARRIVALS, jitter_s, 1)
    times = [item.request.arrived_s for item in moved]
    assert times == sorted(times)
    assert times[0] >= 0
    for before, after in zip(ARRIVALS, moved, strict=True):
        assert after.request.request_id == before.request.request_id
        assert after.request.keys == before.request.keys
        assert after.request.arrived_s - before.request.arrived_s <= jitter_s


def test_the_seed_determines_the_jitter() -> None:
    one, again, other = (jittered_arrivals(ARRIVALS, 0.5, seed) for seed in (1, 1, 2))
    assert one == again != other


def test_a_pattern_without_jitter_moves_no_request() -> None:
    still, moved = (ArrivalPattern(jitter_s=number).source(ARRIVALS, 5.0, 1) for number in (0.0, 0.5))
    assert [still.take() for _ in ARRIVALS] == ARRIVALS
    assert [moved.take() for _ in ARRIVALS] != ARRIVALS
