"""The live feed of this process: one bus subscription, one history, and frames encoded once per set of pools."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Protocol

from controlplane.history.annotation import Annotation
from controlplane.history.bucket import Column
from controlplane.history.rollups import HOUR_TOPIC, decode_hour
from controlplane.incidents.notices import TOPIC as INCIDENTS_TOPIC
from controlplane.incidents.notices import IncidentNotice, IncidentNotices, decode_notices
from controlplane.platform.bus import get_bus
from controlplane.platform.live_fleet.samples import FleetSamples, fleet_samples
from gateway.contracts.fleet_sample import FleetSample
from gateway.contracts.wire import UnreadableMessageError
from web.live.frames import encode_column, encode_keyframe, topology
from web.live.history import COLUMN_S, FleetHistory, RemovedEngine, ScopedHistory, scoped_removed
from web.live.recent_state import drawn_sample
from web.live.scope import Scope, scoped_column, scoped_markers, scoped_sample
from web.live.verdict import FleetVerdict, SteadyVerdict, findings
from web.live.viewer import Viewer

logger = logging.getLogger(__name__)


class HourSource(Protocol):
    """The methods of a bus that the feed needs."""

    def subscribe(self, topic: str, callback: Callable[[str, bytes], None]) -> Callable[[], None]:
        """Call `callback(topic, value)` for each value; return the function that unsubscribes."""
        ...


@dataclass(frozen=True, slots=True)
class Recent:
    """Samples that this process received in the last five minutes, oldest first."""

    columns: list[Column]
    """Columns of FINE_S seconds."""
    markers: list[Annotation]
    since: float
    """Unix second from which on no sample was missed; infinite before the first sample."""


class FleetFeed:
    """Turns fleet samples into frames. Thread-safe: samples arrive in the publisher's thread, viewers in theirs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._history = FleetHistory()
        self._viewers: set[Viewer] = set()
        self._seq = 0
        self._keyframes: dict[Scope, bytes] = {}
        """Keyframes of the newest state, encoded on demand."""
        self._verdicts: dict[Scope, SteadyVerdict] = {}
        self._incidents: tuple[IncidentNotice, ...] = ()
        self._targets = IncidentNotices().targets
        self._started = False
        self._ends: list[Callable[[], None]] = []

    def start(self, samples: FleetSamples, bus: HourSource) -> None:
        """Subscribe to the samples and the bus's stored hour; a second call has no effect."""
        with self._lock:
            if self._started:
                return
            self._started = True
        # Outside the lock: subscribing calls `take` at once with the newest sample.
        self._ends = [
            samples.subscribe(self.take),
            bus.subscribe(HOUR_TOPIC, lambda _topic, value: self.take_hour(value)),
            bus.subscribe(INCIDENTS_TOPIC, lambda _topic, value: self.take_incidents(value)),
        ]

    def stop(self) -> None:
        """Unsubscribe; the history is kept."""
        with self._lock:
            self._started = False
            ends, self._ends = self._ends, []
        for end in ends:
            end()

    def take(self, sample: FleetSample) -> None:
        """Add one sample to the history and pass its frame to every viewer."""
        with self._lock:
            frames = self._advance(sample)
            viewers = tuple(self._viewers) if frames else ()
            seq = self._seq
        for viewer in viewers:
            viewer.offer(seq, frames[viewer.scope])

    def take_hour(self, value: bytes) -> None:
        """Fill the hour strip with stored peaks; viewers get a keyframe if that adds peaks."""
        try:
            stored = decode_hour(value)
        except UnreadableMessageError as error:
            logger.warning("the stored hour is unreadable and was dropped: %s", error)
            return
        with self._lock:
            if not self._history.hour.restore(stored.peaks) or self._history.latest is None:
                return
            self._seq += 1
            self._keyframes = {}
            viewers = tuple(self._viewers)
            frames = {scope: self._keyframe_of_now(scope) for scope in self._scopes()}
            seq = self._seq
        for viewer in viewers:
            viewer.offer(seq, frames[viewer.scope])

    def take_incidents(self, value: bytes) -> None:
        """Use these incidents and targets in the sentence from the next sample on."""
        try:
            notices = decode_notices(value)
        except UnreadableMessageError as error:
            logger.warning("the incidents are unreadable and were dropped: %s", error)
            return
        with self._lock:
            self._incidents, self._targets = notices.notices, notices.targets

    def join(self, scope: Scope = None) -> Viewer:
        """Add a viewer of these pools on the running event loop; its first frame is a keyframe."""
        viewer = Viewer(scope)
        with self._lock:
            self._viewers.add(viewer)
        return viewer

    def leave(self, viewer: Viewer) -> None:
        """Remove the viewer; has no effect if it is already removed."""
        with self._lock:
            self._viewers.discard(viewer)

    def keyframe(self, scope: Scope = None) -> tuple[int, bytes]:
        """Return the sequence number and the keyframe of the newest state, encoded once per state and set of pools."""
        with self._lock:
            return self._seq, self._keyframe_of_now(scope)

    @property
    def latest(self) -> FleetSample | None:
        """The newest sample of all pools; None before the first."""
        return self._history.latest

    @property
    def targets(self) -> Mapping[str, float]:
        """Return the target share on time 0..1 by pool; "" has that of all other pools."""
        return self._targets

    def seen(self, scope: Scope) -> FleetSample | None:
        """Return the part of the newest sample that is in scope; None before the first."""
        return scoped_sample(self._history.latest, scope)

    def recent(self, scope: Scope = None) -> Recent:
        """Return the samples of the last minutes."""
        with self._lock:
            columns = self._history.columns()
            return Recent(
                [scoped_column(column, scope) for column in self._history.fine_columns()],
                scoped_markers(self._history.markers.recent(), scope),
                columns[0].index * COLUMN_S if columns else math.inf,
            )

    def verdict(self, scope: Scope = None) -> FleetVerdict:
        """Return the verdict on the part of the newest sample that is in scope."""
        with self._lock:
            return self._verdict(ScopedHistory(self._history, scope), scope)

    def _advance(self, sample: FleetSample) -> dict[Scope, bytes]:
        """Return the frame for the new `sample` by scope; empty if the sample arrived too late."""
        before = self._history.latest
        last_marker = self._history.markers.last_number
        removed = self._history.removed()
        if not self._history.add(sample):
            return {}
        self._seq += 1
        self._keyframes = {}
        scopes = self._scopes()
        # Sentences of scopes without viewers must not accumulate.
        self._verdicts = {scope: verdict for scope, verdict in self._verdicts.items() if scope in scopes}
        return {scope: self._next_frame(before, removed, last_marker, scope) for scope in scopes}

    def _scopes(self) -> frozenset[Scope]:
        return frozenset(viewer.scope for viewer in self._viewers)

    def _next_frame(
        self, before: FleetSample | None, removed: tuple[RemovedEngine, ...], last_marker: int, scope: Scope
    ) -> bytes:
        seen, seen_before = ScopedHistory(self._history, scope), scoped_sample(before, scope)
        if topology(seen_before) != topology(seen.latest) or scoped_removed(removed, scope) != seen.removed:
            return self._keyframe_of_now(scope)
        return encode_column(seen, self._seq, seen_before, last_marker, self._verdict(seen, scope))

    def _keyframe_of_now(self, scope: Scope) -> bytes:
        if scope not in self._keyframes:
            seen = ScopedHistory(self._history, scope)
            self._keyframes[scope] = encode_keyframe(seen, self._seq, self._verdict(seen, scope))
        return self._keyframes[scope]

    def _verdict(self, seen: ScopedHistory, scope: Scope) -> FleetVerdict:
        """Return the current sentence, which is the same for all viewers of the same pools."""
        newest = seen.newest
        if seen.latest is None or newest is None:
            return findings(None)[0]
        steady = self._verdicts.setdefault(scope, SteadyVerdict())
        incidents = [item for item in self._incidents if scope is None or item.pool in scope]
        # Not the sample itself: no figure of the sentence may differ from what the page draws beside it.
        drawn = drawn_sample(seen.latest, newest)
        statements = findings(drawn, seen.markers(), seen.recent(), steady.shown, incidents, self._targets)
        return steady.show(statements, seen.latest.at)


@cache
def fleet_feed() -> FleetFeed:
    """Return this process's feed, which follows all gateways."""
    feed = FleetFeed()
    feed.start(fleet_samples(), get_bus())
    return feed
