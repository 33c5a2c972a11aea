"""Counts of event ledgers become monotonic counters.

Router counts as counters of the gateway.
"""

from __future__ import annotations

from gateway.base.metrics import GatewayMetrics
from gateway.reports.event_counters import EventCounters
from gateway.reports.queue_counters import QueueCounters
from routing.ledger.router_counts import CountsSeen


def test_growth_is_added_and_a_new_ledger_starts_from_zero() -> None:
    metrics = GatewayMetrics()
    counters = EventCounters(metrics)
    counters.take("e", {"BlockStored": 5, "gaps": 1, "applied": 9})
    counters.take("e", {"BlockStored": 7, "gaps": 1, "unreadable": 2})
    counters.take("e", {"BlockStored": 3, "skipped": 4, "below_engine": 5, "unknown_medium": 6})
    text = metrics.render().decode()
    assert 'headway_kv_events_total{engine="e",type="BlockStored"} 10.0' in text
    for kind, count in (("skipped", 4), ("below_engine", 5), ("unknown_medium", 6)):
        assert f'headway_kv_events_total{{engine="e",type="{kind}"}} {count}.0' in text
    assert 'headway_kv_event_gaps_total{engine="e"} 1.0' in text
    assert 'headway_kv_events_unreadable_total{engine="e"} 2.0' in text


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
