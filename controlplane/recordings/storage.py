"""What this process has of the recordings: its ear on the bus, its hand on the ring, and the kept files."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from django.conf import settings

from controlplane.bus import get_bus
from controlplane.recordings.ring import TrafficRing
from controlplane.recordings.shelf import RecordingShelf
from controlplane.stream_intake import StreamIntake
from gateway.contracts.traffic_row import TOPIC


@dataclass(slots=True)
class TrafficStorage:
    """This process's part of the ring. Mutable: the counts."""

    intake: StreamIntake
    ring: TrafficRing
    stored: int = 0
    runs: int = 0


@functools.cache
def traffic_storage() -> TrafficStorage:
    """Return this process's one storage, which hears the bus from the first call on."""
    return TrafficStorage(StreamIntake(get_bus(), TOPIC), traffic_ring())


def traffic_ring() -> TrafficRing:
    """Return the ring in the state directory."""
    directory = settings.STATE_DIR / "recordings" / "ring"
    return TrafficRing(directory, settings.RECORDING_BYTES, settings.RECORDING_HOURS * 3600.0)


def recording_shelf() -> RecordingShelf:
    """Return the kept recordings in the state directory."""
    return RecordingShelf(settings.STATE_DIR / "recordings" / "kept")
