"""An engine's state in the words and figures of the Engines page."""

from __future__ import annotations

import math

from controlplane.platform.format import NARROW_SPACE, UNKNOWN, clock_time, duration, short, zone_name
from gateway.contracts.fleet_sample import EngineSample, PoolSample

STATE_WORDS = {
    "serving": "Serving",
    "hot": "Hot",
    "degraded": "Degraded",
    "quarantined": "Quarantined",
    "lost": "Lost",
    "draining": "Draining",
    "maintenance": "Maintenance",
    "starting": "Starting",
    "unknown": "Unknown",
}
STATE_PHRASES = {state: word.lower() for state, word in STATE_WORDS.items()} | {"maintenance": "in maintenance"}
"""State names inside a sentence."""
TRUST_WORDS = {"exact": "Exact", "degraded": "Degraded", "blind": "Blind"}
SEVERITY = ("lost", "quarantined", "degraded", "hot", "unknown", "starting", "draining", "maintenance", "serving")
"""States in order of urgency, the most urgent first."""
_SCALE_S = 0.5
_TOP_SLOS = 4
HEAT_STEPS = 9


def owner_words(pool: PoolSample) -> list[str]:
    """Return which gateway decides for all gateways, and its epoch; empty if one gateway serves the pool alone."""
    owned = [role for role in pool.roles if role.owner]
    if not owned:
        return []
    newest = max(owned, key=lambda role: role.epoch)
    return [f"{newest.owner}, epoch {newest.epoch}"]


def alone_words(pool: PoolSample) -> list[str]:
    """Return which gateways decide on their own, why, and since when."""
    alone = [role for role in pool.roles if role.decides_alone]
    return [f"{role.gateway}: {role.reason}, since {clock_time(role.since)} {zone_name()}" for role in alone]


def load_words(engine: EngineSample | None) -> str:
    """Return in-flight work in tokens and seconds; a dash if unknown.

    If no work is in flight, state whether the engine is generating tokens.
    """
    if engine is None or not (engine.answered or engine.in_flight_tokens):
        return UNKNOWN
    if not engine.in_flight_tokens:
        return "decoding" if engine.running else "idle"
    return f"{short(engine.in_flight_tokens)} tok, {engine.in_flight_s:.1f}{NARROW_SPACE}s"


def load_position(in_flight_s: float, slo_s: float) -> int:
    """Return the position of a load on the log scale, 0..100; 100 is four times the TTFT SLO."""
    top = math.log1p(_TOP_SLOS * max(slo_s, 0.001) / _SCALE_S)
    return round(100 * min(1.0, math.log1p(max(0.0, in_flight_s) / _SCALE_S) / top))


def heat_step(position: int) -> int:
    """Return the color step for a position 0..100."""
    return min(HEAT_STEPS - 1, position * HEAT_STEPS // 100)


def hit_words(engine: EngineSample | None) -> str:
    """Return the share of prompt tokens that the engine reported as cached since the gateway started."""
    if engine is None or not engine.prompt_tokens_total:
        return UNKNOWN
    return f"{100 * engine.cached_tokens_total / engine.prompt_tokens_total:.1f}"


STALE_S = 5.0
"""Age in seconds from which an engine's figures are shown as old."""


def age_words(age_s: float | None) -> str:
    """Return a report's age in words."""
    return UNKNOWN if age_s is None else duration(max(0.0, age_s))
