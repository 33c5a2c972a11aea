"""How fast each simulated engine has been lately, by the rule for live engines (planning.facts.engine_speed)."""

from __future__ import annotations

import msgspec

from planning.facts.engine_speed import EngineSpeed, Speed
from simulator.fleet.engine_slots import Station
from simulator.fleet.fleet_simulation import FleetSimulation
from simulator.fleet.request_record import FINISHED, UNFINISHED, RequestRecord

_SLACK_S = 0.1
"""What a first token may take beside its prefill: a decode step that runs, a probe's interval."""


class _Followed(msgspec.Struct, gc=False):
    """One request that has not ended. Mutable: where it was last seen dispatched, and what was expected there."""

    record: RequestRecord
    engine_id: str = ""
    dispatched_s: float | None = None
    expected_s: float = 0.0
    started: bool = False


class SpeedWatch:
    """Mutable: requests that have not ended, and the speed of each engine's present incarnation."""

    def __init__(self) -> None:
        self._seen = 0
        self._followed: dict[str, _Followed] = {}
        self._speeds: dict[str, tuple[int, EngineSpeed]] = {}

    def look(self, simulation: FleetSimulation, now: float) -> None:
        """Take in what happened since the last look."""
        for station in simulation.stations:
            if self._speeds.get(station.engine_id, (0, None))[0] != station.incarnation:
                self._speeds[station.engine_id] = (station.incarnation, EngineSpeed())
        for record in simulation.history[self._seen :]:
            self._followed[record.request.request_id] = _Followed(record)
        self._seen = len(simulation.history)
        for each in sorted(filter(_is_new, self._followed.values()), key=lambda item: item.record.dispatched_s or 0.0):
            self._expect(each)
        for each in self._followed.values():
            self._hear(each, now)
        self._followed = {name: each for name, each in self._followed.items() if each.record.status == UNFINISHED}

    def slowness(self, station: Station, now: float) -> Speed:
        """Return the median of seconds to first token over expected seconds, late requests included."""
        standing = [
            (found.dispatched_s, found.expected_s)
            for name, record in station.live.items()
            if record.first_token_s is None
            and (found := self._followed.get(name)) is not None
            and found.dispatched_s is not None
        ]
        return self._of(station.engine_id).slowness(standing, now)

    def tpot(self, station: Station, now: float) -> Speed:
        """Return the median of the mean times between tokens in seconds, and the number of samples."""
        return self._of(station.engine_id).tpot(now)

    def _expect(self, each: _Followed) -> None:
        record = each.record
        each.engine_id, each.dispatched_s = record.engine_id, record.dispatched_s
        each.expected_s = self._of(each.engine_id).expects(record.compute_s, record.dispatched_s or 0.0) + _SLACK_S

    def _hear(self, each: _Followed, now: float) -> None:
        record = each.record
        speed = self._of(each.engine_id)
        if record.first_token_s is not None and each.dispatched_s is not None and not each.started:
            each.started = True
            speed.first_token(record.first_token_s - each.dispatched_s, each.expected_s, now)
        if record.status == FINISHED and record.tpot_s is not None:
            speed.answered(record.tpot_s, now)

    def _of(self, engine_id: str) -> EngineSpeed:
        return self._speeds.setdefault(engine_id, (0, EngineSpeed()))[1]


def _is_new(each: _Followed) -> bool:
    """Return whether the request was dispatched since it was last seen."""
    return each.record.dispatched_s is not None and each.record.dispatched_s != each.dispatched_s
