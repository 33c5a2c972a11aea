"""Router counts as counters of the gateway."""

from __future__ import annotations

from gateway.base.metrics import GatewayMetrics
from gateway.reports.queue_counters import QueueCounters
from routing.ledger.router_counts import CountsSeen


def test_only_growth_is_added() -> None:
    metrics = GatewayMetrics()
    counters = QueueCounters(metrics)
    counters.take("chat", CountsSeen(dispatched_at_once=5, dispatched_after_waiting=2, queued=3, migrated=1))
    counters.take("chat", CountsSeen(dispatched_at_once=6, dispatched_after_waiting=2, queued=3, migrated=4))
    assert metrics.dispatches.value("chat", "at_once") == 6
    assert metrics.dispatches.value("chat", "after_waiting") == 2
    assert metrics.migrations.value("chat") == 4


def test_the_counts_of_a_new_router_are_added_whole() -> None:
    metrics = GatewayMetrics()
    counters = QueueCounters(metrics)
    counters.take("chat", CountsSeen(dispatched_at_once=5, queued=3))
    counters.take("chat", CountsSeen(dispatched_at_once=2, dispatched_after_waiting=1, queued=1))
    assert (metrics.dispatches.value("chat", "at_once"), metrics.dispatches.value("chat", "after_waiting")) == (7, 1)


def test_a_pool_that_left_and_returned_continues_its_counts() -> None:
    metrics = GatewayMetrics()
    counters = QueueCounters(metrics)
    counters.take("chat", CountsSeen(dispatched_at_once=5))
    counters.forget("chat")
    counters.take("chat", CountsSeen(dispatched_at_once=6))
    assert metrics.dispatches.value("chat", "at_once") == 11
