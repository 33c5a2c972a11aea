"""Moments worth a mark on the time axis: what an engine or a policy became, and when."""

from __future__ import annotations

from collections import deque

import msgspec

from gateway.fleet_sample import EngineSample, FleetSample, PoolSample

MAX_MARKERS = 64
"""An engine that flaps must not grow the picture; the oldest marks leave first."""

_QUIET_STATES = frozenset({"serving"})


class Marker(msgspec.Struct, frozen=True, gc=False):
    """One moment. `kind` is an engine state, or started, back, restarted, joined, left, policy."""

    number: int
    """Grows by one per marker; a viewer adds those above the last it has."""
    at: float
    """Unix seconds."""
    kind: str
    label: str
    """What fits into the capsule, for example e-17 or v42 live."""
    text: str
    """The whole sentence."""
    pool_id: str
    engine_id: str = ""


class MarkerLog:
    """Derives markers from consecutive samples and keeps those of the last `span_s` seconds."""

    def __init__(self, span_s: float) -> None:
        self._span_s = span_s
        self._markers: deque[Marker] = deque(maxlen=MAX_MARKERS)
        self._number = 0

    @property
    def last_number(self) -> int:
        """Number of the newest marker ever given; 0 before the first."""
        return self._number

    def recent(self, after: int = 0) -> list[Marker]:
        """Return the kept markers above number `after`, oldest first."""
        return [marker for marker in self._markers if marker.number > after]

    def follow(self, before: FleetSample | None, sample: FleetSample) -> None:
        """Mark what changed between two consecutive samples; the first sample marks nothing."""
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
            old = before.pop(engine.engine_id, None)
            change = _engine_change(old, engine)
            if change is not None:
                self._mark(sample.at, change[0], engine.name, change[1], engine.pool_id, engine.engine_id)
        for engine in before.values():
            text = f"{engine.name} left the fleet"
            self._mark(sample.at, "left", engine.name, text, engine.pool_id, engine.engine_id)

    def _mark(self, at: float, kind: str, label: str, text: str, pool_id: str, engine_id: str = "") -> None:
        self._number += 1
        self._markers.append(Marker(self._number, at, kind, label, text, pool_id, engine_id))


def _engine_change(old: EngineSample | None, new: EngineSample) -> tuple[str, str] | None:
    """Return kind and sentence of what happened to an engine between two samples, None for nothing."""
    if old is None:
        return "joined", f"{new.name} joined the fleet"
    if old.state != new.state:
        if new.state in _QUIET_STATES:
            if old.state == "starting":
                return "started", f"{new.name} serves"
            return "back", f"{new.name} serves again; it was {old.state}"
        reason = f": {new.reason.rstrip('.')}" if new.reason else ""
        return new.state, f"{new.name} is {new.state}{reason}"
    if new.incarnation > old.incarnation:
        return "restarted", f"{new.name} restarted as incarnation {new.incarnation}"
    return None
