"""What the gateway last said about one engine, for those who decide whether it may go."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.platform.bus import get_bus
from gateway.contracts.fleet_sample import TOPIC, decode_sample
from gateway.contracts.wire import UnreadableMessageError

MAX_AGE_S = 10.0
"""An older sample says nothing about what is in flight; samples come twice a second."""


@dataclass(frozen=True, slots=True)
class EngineReading:
    """Requests that run on the engine or wait for it (None: unknown), and whether the gateway has lost it."""

    in_flight: int | None = None
    lost: bool = False


def engine_reading(engine_id: str, now: float) -> EngineReading:
    """Return the newest reading of the engine; `now` is unix seconds."""
    data = get_bus().latest(TOPIC)
    if data is None:
        return EngineReading()
    try:
        sample = decode_sample(data)
    except UnreadableMessageError:
        # A gateway of another version; what it says is unknown to this program.
        return EngineReading()
    if now - sample.at > MAX_AGE_S:
        return EngineReading()
    for engine in sample.engines:
        if engine.engine_id == engine_id:
            return EngineReading(engine.running + engine.bound, engine.state == "lost")
    return EngineReading()
