"""An engine's state, with its reason as a sentence for operators."""

from __future__ import annotations

from gateway.base.engine_api_keys import key_remedy
from gateway.pools.engines.breaker import HALF_OPEN, OPEN, THROTTLED
from gateway.pools.engines.health_verdict import HEALTHY, QUARANTINED
from gateway.pools.engines.live_engine import LiveEngine

STARTING_S = 60.0
"""Seconds during which an engine without any answer counts as starting. After that it counts as lost."""
REPORT_COUNTS_S = 30.0
"""Seconds for which a problem in a report is displayed."""

_OUT_OF_SERVICE = {"maintenance": "out of service by an operator", "asleep": "asleep, until the scaler wakes it"}


def health_state(engine: LiveEngine, now: float, *, accepts: bool) -> tuple[str, str]:
    """Return (state, reason) from the desired state and health. Whether the engine is hot is decided elsewhere.

    `accepts`: it accepts new work, which is possible despite an open breaker if too many breakers are open.
    """
    if (reason := _OUT_OF_SERVICE.get(engine.entry.desired_state)) is not None:
        return "maintenance", reason
    if engine.breaker.state == OPEN:
        return ("degraded" if accepts else _out_of_rotation(engine, now)), engine.breaker.reason
    if engine.entry.desired_state == "draining":
        return "draining", "drained, takes no new work"
    if engine.entry.health == QUARANTINED and not accepts:
        return QUARANTINED, engine.entry.health_reason
    if engine.entry.health != HEALTHY:
        return "degraded", f"{engine.entry.health}: {engine.entry.health_reason}"
    complaint = engine.breaker.reason if engine.breaker.state == HALF_OPEN else _complaint(engine, now)
    return ("degraded", complaint) if complaint else ("serving", "")


def _out_of_rotation(engine: LiveEngine, now: float) -> str:
    if engine.breaker.cause == THROTTLED:
        return "degraded"
    if engine.breaker.stalled and not engine.breaker.hung:
        return QUARANTINED
    if engine.breaker.answered:
        return "lost"
    if not engine.probed.is_set():
        return "unknown"
    return "starting" if now - engine.created_at < STARTING_S else "lost"


def _complaint(engine: LiveEngine, now: float) -> str:
    if engine.key_rejected:
        return f"it rejects the gateway's key. {key_remedy(engine.entry.key_variable)}"
    age_s = engine.report_age_s(now)
    reported = engine.report is not None and age_s is not None and age_s <= REPORT_COUNTS_S
    return engine.report.reason if reported and engine.report is not None else engine.late
