"""Recent speed of each simulated engine, computed as for live engines (planning.facts.engine_speed)."""

from __future__ import annotations

import msgspec

from planning.facts.engine_speed import EngineSpeed, Speed
from simulator.fleet.engine_slots import Station
from simulator.fleet.fleet_simulation import FleetSimulation
from simulator.fleet.request_record import FINISHED, UNFINISHED, RequestRecord

_SLACK_S = 0.1
"""Allowance in seconds for a first token beyond its prefill: a running decode step and a probe's interval."""


class _Followed(msgspec.Struct, gc=False):
    """One unfinished request. Mutable: its last known dispatch, and the expected seconds to its first token there."""

    record: RequestRecord
    engine_id: str = ""
    dispatched_s: float | None = None
    expected_s: float = 0.0
    started: bool = False


class SpeedWatch:
    """Measures how fast engines serve requests. Mutable state: unfinished requests, and each engine incarnation's
    speed.
    """

    def __init__(self) -> None:
        self._seen = 0
        self._followed: dict[str, _Followed] = {}
        self._speeds: dict[str, tuple[int, EngineSpeed]] = {}

    def observe(self, simulation: FleetSimulation, now: float) -> None:
        """Record the events since the last call."""
        for station in simulation.stations:
            if self._speeds.get(station.engine_id, (0, None))[0] != station.incarnation:
                # A restarted engine is not judged by what it did before.
                self._speeds[station.engine_id] = (station.incarnation, EngineSpeed())
        for record in simulation.history[self._seen :]:
            self._followed[record.request.request_id] = _Followed(record)
        self._seen = len(simulation.history)
        # In order of dispatch: what an engine is expected to take depends on the work ahead.
        for entry in sorted(filter(_is_new, self._followed.values()), key=lambda item: item.record.dispatched_s or 0.0):
            self._expect(entry)
        for entry in self._followed.values():
            self._record(entry, now)
        self._followed = {name: entry for name, entry in self._followed.items() if entry.record.status == UNFINISHED}

    def slowness(self, station: Station, now: float) -> Speed:
        """Return the median ratio of actual to expected seconds until the first token, overdue requests included."""
        unanswered = [
            (entry.dispatched_s, entry.expected_s)
            for name, record in station.live.items()
            if record.first_token_s is None
            and (entry := self._followed.get(name)) is not None
            and entry.dispatched_s is not None
        ]
        return self._of(station.engine_id).slowness(unanswered, now)

    def tpot(self, station: Station, now: float) -> Speed:
        """Return the median of the mean seconds between tokens, and the number of samples."""
        return self._of(station.engine_id).tpot(now)

    def _expect(self, entry: _Followed) -> None:
        record = entry.record
        entry.engine_id, entry.dispatched_s = record.engine_id, record.dispatched_s
        entry.expected_s = self._of(entry.engine_id).expects(record.compute_s, record.dispatched_s or 0.0) + _SLACK_S

    def _record(self, entry: _Followed, now: float) -> None:
        record = entry.record
        speed = self._of(entry.engine_id)
        if record.first_token_s is not None and entry.dispatched_s is not None and not entry.started:
            entry.started = True
            speed.first_token(record.first_token_s - entry.dispatched_s, entry.expected_s, now)
        if record.status == FINISHED and record.tpot_s is not None:
            speed.answered(record.tpot_s, now)

    def _of(self, engine_id: str) -> EngineSpeed:
        return self._speeds.setdefault(engine_id, (0, EngineSpeed()))[1]


def _is_new(entry: _Followed) -> bool:
    """Return whether the request was dispatched since the last observation."""
    return entry.record.dispatched_s is not None and entry.record.dispatched_s != entry.dispatched_s
