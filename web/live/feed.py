"""The live feed of this process: one bus subscription, one history, frames encoded once for all viewers."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Protocol

from controlplane.bus import get_bus
from controlplane.fleet_past.column import Column
from controlplane.fleet_past.marker import Marker
from controlplane.services.rollups import HOUR_TOPIC, decode_hour
from gateway.fleet_sample import TOPIC, FleetSample, decode_sample
from gateway.wire import UnreadableMessageError
from web.live.frames import encode_column, encode_keyframe, topology
from web.live.history import COLUMN_S, FleetHistory
from web.live.verdict import Verdict, judge
from web.live.viewer import Viewer

logger = logging.getLogger(__name__)


class SampleSource(Protocol):
    """The half of a bus that the feed needs."""

    def subscribe(self, topic: str, callback: Callable[[str, bytes], None]) -> Callable[[], None]:
        """Call `callback(topic, value)` for each value; return what ends it."""
        ...


@dataclass(frozen=True, slots=True)
class Recent:
    """What this process heard itself in the last five minutes, oldest first."""

    columns: list[Column]
    """Of FINE_S seconds."""
    markers: list[Marker]
    since: float
    """Unix seconds from which on it heard everything; infinite before the first sample."""


class FleetFeed:
    """Turns fleet samples into frames. Thread-safe: samples come in the publisher's thread, viewers in theirs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._history = FleetHistory()
        self._viewers: set[Viewer] = set()
        self._seq = 0
        self._keyframe: tuple[int, bytes] | None = None
        self._started = False
        self._ends: list[Callable[[], None]] = []

    def start(self, bus: SampleSource) -> None:
        """Follow the bus's samples and its stored hour; a second call changes nothing."""
        with self._lock:
            if self._started:
                return
            self._started = True
        self._ends = [
            bus.subscribe(TOPIC, lambda _topic, value: self.take(value)),
            bus.subscribe(HOUR_TOPIC, lambda _topic, value: self.take_hour(value)),
        ]

    def stop(self) -> None:
        """Leave the bus; the history stays."""
        with self._lock:
            self._started = False
            ends, self._ends = self._ends, []
        for end in ends:
            end()

    def take(self, value: bytes) -> None:
        """Fold one encoded FleetSample into the history and hand its frame to every viewer.

        A value that is no sample of our schema is logged and dropped: the picture keeps its last truth.
        """
        try:
            sample = decode_sample(value)
        except UnreadableMessageError as error:
            logger.warning("a fleet sample is unreadable and was dropped: %s", error)
            return
        with self._lock:
            frame = self._advance(sample)
            viewers = tuple(self._viewers) if frame else ()
            seq = self._seq
        for viewer in viewers:
            viewer.offer(seq, frame)

    def take_hour(self, value: bytes) -> None:
        """Fill the hour strip with stored peaks; viewers get a keyframe where that adds something."""
        try:
            stored = decode_hour(value)
        except UnreadableMessageError as error:
            logger.warning("the stored hour is unreadable and was dropped: %s", error)
            return
        with self._lock:
            if not self._history.hour.restore(stored.peaks) or self._history.latest is None:
                return
            self._seq += 1
            self._keyframe = None
            seq, frame = self._keyframe_of_now()
            viewers = tuple(self._viewers)
        for viewer in viewers:
            viewer.offer(seq, frame)

    def join(self) -> Viewer:
        """Add a viewer on the running event loop; its first frame is a keyframe."""
        viewer = Viewer()
        with self._lock:
            self._viewers.add(viewer)
        return viewer

    def leave(self, viewer: Viewer) -> None:
        """Forget the viewer; harmless when it left before."""
        with self._lock:
            self._viewers.discard(viewer)

    def keyframe(self) -> tuple[int, bytes]:
        """Return sequence number and keyframe of the newest state, encoded once per state."""
        with self._lock:
            return self._keyframe_of_now()

    @property
    def latest(self) -> FleetSample | None:
        """The newest sample; None before the first."""
        return self._history.latest

    def recent(self) -> Recent:
        """Return copies that stay as they are."""
        with self._lock:
            heard = self._history.columns()
            return Recent(
                # A column changes by getting new arrays, so a shallow copy is enough.
                [
                    replace(column, pools=dict(column.pools), refusals=dict(column.refusals))
                    for column in self._history.fine_columns()
                ],
                self._history.markers.recent(),
                heard[0].index * COLUMN_S if heard else math.inf,
            )

    def verdict(self) -> Verdict:
        """Return the sentence about the newest sample."""
        with self._lock:
            return judge(self._history.latest, self._history.markers.recent())

    def _advance(self, sample: FleetSample) -> bytes:
        """Return the frame that leads from the last state to the one with `sample`; empty when it came too late."""
        before = self._history.latest
        last_marker = self._history.markers.last_number
        if not self._history.add(sample):
            return b""
        self._seq += 1
        self._keyframe = None
        if topology(before) != topology(sample):
            return self._keyframe_of_now()[1]
        return encode_column(self._history, self._seq, before, last_marker)

    def _keyframe_of_now(self) -> tuple[int, bytes]:
        if self._keyframe is None:
            self._keyframe = (self._seq, encode_keyframe(self._history, self._seq))
        return self._keyframe


@cache
def fleet_feed() -> FleetFeed:
    """Return this process's feed, following the control plane's bus."""
    feed = FleetFeed()
    feed.start(get_bus())
    return feed
