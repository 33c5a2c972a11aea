"""Markers on the time axis: state changes of engines and policies."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from controlplane.platform.format import some_names
from gateway.contracts.fleet_sample import EngineFaults, EngineSample, FleetSample, PoolSample
from routing.values.counted import count

MAX_MARKERS = 64
"""Maximum number of markers, so that a flapping engine does not clutter the chart. The oldest are dropped first."""
WAVE_S = 30.0
"""Starts in one pool within this time of each other share one marker."""

CALM_S = 10.0
"""Failed requests within this time of a loss or restart belong to it."""
EVENTS = {"lost": "engine.lost", "restarted": "engine.restart"}
"""Kinds of markers that are audit events, too, and their verbs."""
_WAS_LOST = "; it was lost"
_QUIET_STATES = frozenset({"serving"})
_STARTS = frozenset({"starting", "started", "joined", "unknown"})


class Annotation(msgspec.Struct, frozen=True, gc=False):
    """One marker. `kind` is an engine state, or started, back, restarted, joined, left, policy."""

    number: int
    """Sequence number. A viewer adds markers with numbers above its last one."""
    at: float
    """Unix seconds."""
    kind: str
    label: str
    """Short label, such as e-17 or v42 live."""
    text: str
    """Full description."""
    pool_id: str
    engine_id: str = ""
    replaces: int = 0
    """Number of the marker that this marker replaces; 0: none."""


class _Wave(msgspec.Struct):
    """Engines of one pool that start together. Mutable: grows until no engine has started for WAVE_S."""

    at: float
    last_at: float
    number: int
    began: dict[str, str]
    """Engine id → name."""
    serving: set[str]


class AnnotationLog:
    """Derives markers from consecutive samples, and keeps the markers of the last `span_s` seconds."""

    def __init__(self, span_s: float) -> None:
        self._span_s = span_s
        self._markers: deque[Annotation] = deque(maxlen=MAX_MARKERS)
        self._waves: dict[str, _Wave] = {}
        self._calm: dict[str, EngineFaults] = {}
        self._number = 0

    @property
    def last_number(self) -> int:
        """Return the number of the newest marker; 0 without markers."""
        return self._number

    def recent(self, after: int = 0) -> list[Annotation]:
        """Return the stored markers with numbers above `after`, oldest first."""
        return [marker for marker in self._markers if marker.number > after]

    def follow(self, before: FleetSample | None, sample: FleetSample) -> None:
        """Add markers for the changes between two consecutive samples. The first sample adds none."""
        while self._markers and self._markers[0].at < sample.at - self._span_s:
            self._markers.popleft()
        if before is None:
            return
        self._follow_pools({pool.pool_id: pool for pool in before.pools}, sample)
        self._follow_engines({engine.engine_id: engine for engine in before.engines}, sample)

    def _follow_pools(self, before: dict[str, PoolSample], sample: FleetSample) -> None:
        for pool in sample.pools:
            old = before.get(pool.pool_id)
            if old is not None and old.policy_version != pool.policy_version:
                version = f"v{pool.policy_version} live"
                self._mark(sample.at, "policy", version, f"{pool.name}: policy {version}", pool.pool_id)

    def _follow_engines(self, before: dict[str, EngineSample], sample: FleetSample) -> None:
        for engine in sample.engines:
            change = _engine_change(before.pop(engine.engine_id, None), engine)
            if change is None:
                continue
            if change[0] in _STARTS:
                self._start(sample.at, change, engine)
            else:
                text = change[1] + (self._failures(engine) if change[0] in EVENTS else "")
                self._mark(sample.at, change[0], engine.name, text, engine.pool_id, engine.engine_id)
        self._note_calm(sample)
        for engine in before.values():
            text = f"{engine.name} was removed from the fleet"
            self._mark(sample.at, "left", f"{engine.name} removed", text, engine.pool_id, engine.engine_id)

    def _note_calm(self, sample: FleetSample) -> None:
        """Remember each engine's failed requests until those of the last CALM_S seconds."""
        before, self._calm = self._calm, {}
        for engine in sample.engines:
            if (faults := engine.faults) is not None:
                recent = sample.at - (faults.failed_at or 0.0) <= CALM_S
                self._calm[engine.engine_id] = before.get(engine.engine_id, faults) if recent else faults

    def _failures(self, engine: EngineSample) -> str:
        """Return the clause about the requests that failed with the engine."""
        now, calm = engine.faults, self._calm.get(engine.engine_id)
        if now is None or calm is None:
            return ""
        broken, unanswered = now.broken - calm.broken, now.unanswered - calm.unanswered
        words = [f"; {count(broken, 'stream')} broke"] if broken > 0 else []
        words += [f"; {count(unanswered, 'request')} got no answer"] if unanswered > 0 else []
        return "".join(words)

    def _start(self, at: float, change: tuple[str, str], engine: EngineSample) -> None:
        """Add the engine to its pool's wave of starts. A wave has one marker, which is replaced as the wave grows."""
        wave = self._waves.get(engine.pool_id)
        if wave is None or at - wave.last_at > WAVE_S:
            wave = self._waves[engine.pool_id] = _Wave(at, at, 0, {}, set())
        wave.last_at = at
        wave.began[engine.engine_id] = engine.name
        if change[0] == "started" or engine.state in _QUIET_STATES:
            wave.serving.add(engine.engine_id)
        kind, label, text = change[0], engine.name, change[1]
        if len(wave.began) > 1:
            kind, label, text = _wave_words(wave)
        if wave.number:
            # A deque cannot be changed in the middle; marks stay in the order of their numbers.
            kept = [marker for marker in self._markers if marker.number != wave.number]
            self._markers = deque(kept, maxlen=MAX_MARKERS)
        about = engine.engine_id if len(wave.began) == 1 else ""
        self._mark(wave.at, kind, label, text, engine.pool_id, about, replaces=wave.number)
        wave.number = self._number

    def _mark(
        self, at: float, kind: str, label: str, text: str, pool_id: str, engine_id: str = "", *, replaces: int = 0
    ) -> None:
        self._number += 1
        self._markers.append(Annotation(self._number, at, kind, label, text, pool_id, engine_id, replaces))


def event_verb(marker: Annotation) -> str:
    """Return the verb of the audit event that the marker is, too; empty if it is none."""
    if marker.kind == "back":
        return "engine.back" if marker.text.endswith(_WAS_LOST) else ""
    return EVENTS.get(marker.kind, "")


def without_replaced(markers: Iterable[Annotation]) -> list[Annotation]:
    """Return the markers without replaced ones. Several processes may have written them."""
    kept: list[Annotation] = []
    for marker in markers:
        if marker.replaces:
            # Another process starts its own numbering: a number alone identifies no marker, its start time does.
            kept = [old for old in kept if old.number != marker.replaces or old.at != marker.at]
        kept.append(marker)
    return kept


def _wave_words(wave: _Wave) -> tuple[str, str, str]:
    total, serving = len(wave.began), len(wave.serving)
    names = some_names(list(wave.began.values()), 6)
    if serving == total:
        engines = count(total, "engine started and serves", "engines started and serve")
        return "started", f"{total} started", f"{engines}: {names}"
    starting = count(total, "engine starts", "engines start")
    return "starting", f"{serving} of {total} started", f"{starting}, {serving} of them serving: {names}"


def _engine_change(old: EngineSample | None, new: EngineSample) -> tuple[str, str] | None:
    """Return kind and description of an engine's change between two samples; None without a change."""
    if old is None:
        return "joined", f"{new.name} joined the fleet"
    changed = old.state != new.state
    if changed and new.state not in _QUIET_STATES:
        reason = f": {new.reason.rstrip('.')}" if new.reason else ""
        return new.state, f"{new.name} is {new.state}{reason}"
    if changed and old.state in _STARTS:
        return "started", f"{new.name} serves"
    was = f"; it was {old.state}" if changed else ""
    if new.incarnation > old.incarnation:
        return "restarted", f"{new.name} restarted as incarnation {new.incarnation}{was}"
    return ("back", f"{new.name} serves again{was}") if changed else None
