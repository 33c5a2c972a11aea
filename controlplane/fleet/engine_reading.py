"""The gateways' newest figures for one engine, to decide whether it may be deleted."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.platform.live_fleet.samples import fleet_samples

MAX_AGE_S = 10.0
"""An older sample says nothing about what is in flight; samples come twice a second."""


@dataclass(frozen=True, slots=True)
class EngineReading:
    """Requests that run on the engine or wait for it (None: unknown), and whether all gateways have lost it."""

    in_flight: int | None = None
    lost: bool = False


def engine_reading(engine_id: str, now: float) -> EngineReading:
    """Return the newest reading of the engine, all gateways together; `now` is unix seconds."""
    sample = fleet_samples().latest
    if sample is None or now - sample.at > MAX_AGE_S:
        return EngineReading()
    for engine in sample.engines:
        if engine.engine_id == engine_id:
            return EngineReading(engine.running + engine.bound, engine.state == "lost")
    return EngineReading()
