"""Counts of event ledgers become monotonic counters."""

from __future__ import annotations

from gateway.base.metrics import GatewayMetrics
from gateway.reports.event_counters import EventCounters


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
