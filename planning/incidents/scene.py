"""Holds what the rules for causes know of one pool: the time since the onset, and the minutes before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planning.incidents.signs import Change, EngineSigns, FleetSigns, Interval, SignLog

BASELINE_S, GUARD_S = 600.0, 30.0
"""The usual minutes before the onset, without its last seconds."""
CHANGE_S = 300.0
"""Seconds before the onset in which a change can be its cause."""


@dataclass(frozen=True, slots=True)
class Scene:
    """One pool around the onset of an incident."""

    log: SignLog
    newest: FleetSigns
    pool_id: str
    onset: float
    during: Interval
    """Since the onset, at most two minutes."""
    before: Interval | None
    """The usual minutes before the onset; None if they are not known."""
    changes: Sequence[Change]

    @property
    def engines(self) -> list[EngineSigns]:
        """Return the pool's engines in the newest reading."""
        return [item for _, item in sorted(self.newest.engines.items()) if item.pool_id == self.pool_id]

    @property
    def growth(self) -> float | None:
        """Return arrivals since the onset over the usual ones; None if unknown."""
        if self.before is None:
            return None
        usual = self.before.arrivals_per_s()
        return self.during.arrivals_per_s() / usual if usual > 0 else None

    def changed(self, *kinds: str) -> list[Change]:
        """Return the pool's changes of these kinds shortly before the onset or since, nearest to it first."""
        mine = [
            item
            for item in self.changes
            if item.kind in kinds and item.pool_id in ("", self.pool_id) and item.at >= self.onset - CHANGE_S
        ]
        return sorted(mine, key=lambda item: abs(item.at - self.onset))


def scene_of(log: SignLog, pool_id: str, onset: float, changes: Sequence[Change]) -> Scene | None:
    newest = log.newest
    if newest is None:
        return None
    begin = max(onset, newest.at - 120.0, log.oldest_at())
    during = log.interval(pool_id, begin, newest.at) or log.recent(pool_id, 10.0)
    if during is None:
        return None
    usual_from = max(onset - BASELINE_S, log.oldest_at())
    before = log.interval(pool_id, usual_from, onset - GUARD_S)
    if before is None or before.span_s < GUARD_S:
        before = log.interval(pool_id, usual_from, onset - 5.0)
    known = before if before is not None and before.span_s >= GUARD_S else None
    return Scene(log, newest, pool_id, onset, during, known, changes)
