"""Overtaking among dispatches, and the sampling of ended decisions."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.pools.pool.recent_decisions import DecisionRecord
from gateway.pools.traffic.past_moments import PastMoments
from gateway.reports.queue_overtakes import QueueOvertakes
from gateway.reports.request_outbox import kept
from tests.gateway.decision_records import decision_record


def record(name: str, arrived_s: float, queued_s: float, ttft_s: float | None, **fields: Any) -> DecisionRecord:
    return decision_record(name, arrived_s, ttft_s, outcome="completed", queued_s=queued_s, **fields)


def test_younger_requests_dispatched_first_are_summed() -> None:
    overtaken = QueueOvertakes()
    for number in range(4):
        overtaken.dispatched(record(f"younger-{number}", 10.5, 1.0 + number, None, compute_s=1.0))
    overtaken.dispatched(record("older", 9.0, 2.0, None, compute_s=50.0))
    overtaken.dispatched(record("elsewhere", 10.5, 2.0, None, compute_s=50.0, engine_id="there"))
    assert overtaken.seconds(record("late", 10.0, 5.1, 5.3)) == pytest.approx(4.0)
    assert overtaken.seconds(record("at once", 10.0, 0.0, 5.3)) == 0.0


def test_ages_are_measured_at_the_time_of_the_decision() -> None:
    moments = PastMoments(limit=2, apart_s=0.5)
    for at_s in (1.0, 1.2, 2.0, 3.0, 4.0):
        moments.note(at_s)
    assert moments.age_s(4.5) == pytest.approx(0.5)
    assert moments.age_s(2.5) is None
    assert len(moments._moments) < 4
    assert moments.any_between(2.5, 3.5)
    assert not moments.any_between(3.1, 3.9)


@pytest.mark.parametrize(("count", "at_most", "left"), [(10, 20, 10), (10, 5, 5), (100, 7, 7), (3, 0, 0), (0, 5, 0)])
def test_ordinary_decisions_are_sampled_evenly_and_represent_similar_ones(count: int, at_most: int, left: int) -> None:
    ended = [record(f"d-{number}", 0.0, 0.0, 0.1) for number in range(count)]
    chosen = kept(ended, at_most)
    assert len(chosen) == left
    if left:
        assert sum(1 / share for _, share in chosen) == pytest.approx(count)
        positions = [ended.index(item) for item, _ in chosen]
        assert positions == sorted(positions)
        assert max(positions) - min(positions) >= (left - 1) * count / left - 1
