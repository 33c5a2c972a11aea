"""Age of the last wake-up in /metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from gateway.bus.bus import InProcessBus
from gateway.bus.bus_metrics import WAKE_UP_AGE, WAKE_UPS, WakeUpAge


def test_the_age_grows_until_a_job_is_woken() -> None:
    registry, bus, now = CollectorRegistry(), InProcessBus(), [100.0]
    WakeUpAge(registry, bus, clock=lambda: now[0])
    now[0] += 5.0
    assert registry.get_sample_value(WAKE_UP_AGE) == 5.0
    bus.append(WAKE_UPS, b"")
    now[0] += 2.0
    assert registry.get_sample_value(WAKE_UP_AGE) == 2.0
