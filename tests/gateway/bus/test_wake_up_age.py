"""Age of the last wake-up in /metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from gateway.bus.bus import InProcessBus
from gateway.bus.wake_up_age import NAME, TOPIC, WakeUpAge


def test_the_age_grows_until_a_job_is_woken() -> None:
    registry, bus, now = CollectorRegistry(), InProcessBus(), [100.0]
    WakeUpAge(registry, bus, clock=lambda: now[0])
    now[0] += 5.0
    assert registry.get_sample_value(NAME) == 5.0
    bus.append(TOPIC, b"")
    now[0] += 2.0
    assert registry.get_sample_value(NAME) == 2.0
