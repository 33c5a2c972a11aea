"""Age of the last wake-up, and the scaler's plan, in /metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from gateway.bus.bus import InProcessBus
from gateway.bus.bus_metrics import (
    PLAN_GOOD_S,
    PLANS,
    WAKE_UP_AGE,
    WAKE_UPS,
    WANTED_ENGINES,
    ScalingPlans,
    WakeUpAge,
    WantedEngines,
    encode_wanted,
)


def test_the_age_grows_until_a_job_is_woken() -> None:
    registry, bus, now = CollectorRegistry(), InProcessBus(), [100.0]
    WakeUpAge(registry, bus, clock=lambda: now[0])
    now[0] += 5.0
    assert registry.get_sample_value(WAKE_UP_AGE) == 5.0
    bus.append(WAKE_UPS, b"")
    now[0] += 2.0
    assert registry.get_sample_value(WAKE_UP_AGE) == 2.0


def test_the_newest_plan_is_exported_until_it_is_too_old() -> None:
    registry, bus, now = CollectorRegistry(), InProcessBus(), [1000.0]
    ScalingPlans(registry, bus, clock=lambda: now[0])

    def publish(at: float, engines: int) -> None:
        bus.publish(PLANS + "chat", encode_wanted(WantedEngines(pool_id="chat", at=at, engines=engines)))

    def wanted() -> float | None:
        return registry.get_sample_value(WANTED_ENGINES, {"pool": "chat"})

    assert wanted() is None
    publish(1000.0, 4)
    bus.publish(PLANS + "chat", b"\xff")
    publish(995.0, 9)
    assert wanted() == 4.0
    now[0] += PLAN_GOOD_S
    assert wanted() == 4.0
    now[0] += 1.0
    assert wanted() is None
    publish(now[0], 0)
    assert wanted() == 0.0
