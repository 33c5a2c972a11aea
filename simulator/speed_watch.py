"""How fast each simulated engine has been lately: first tokens beside their estimates, and times between tokens."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from statistics import median

from simulator.engine_profile import EngineProfile
from simulator.fleet_simulation import FleetSimulation
from simulator.request_record import FINISHED, UNFINISHED, RequestRecord
from simulator.stations import Station

SPEED_WINDOW_S = 30.0
"""Over which the speeds of engines are judged."""
_SLACK_S = 0.1
"""What a first token may take beside its prefill: a decode step that runs, a probe's interval."""

_Samples = dict[str, deque[tuple[float, float]]]


class SpeedWatch:
    """Mutable: requests whose first token, or whose end, is still to come, and the samples of each engine."""

    def __init__(self, profile: EngineProfile) -> None:
        self._profile = profile
        self._seen = 0
        self._prefilling: list[RequestRecord] = []
        self._decoding: list[RequestRecord] = []
        self._slowness: _Samples = {}
        self._tbt: _Samples = {}

    def look(self, simulation: FleetSimulation, now: float) -> None:
        """Take in what happened since the last look."""
        self._prefilling += simulation.history[self._seen :]
        self._seen = len(simulation.history)
        started = [each for each in self._prefilling if each.first_token_s is not None]
        self._prefilling = [
            each for each in self._prefilling if each.first_token_s is None and each.status == UNFINISHED
        ]
        for record in started:
            if record.granted_s is not None and record.first_token_s is not None:
                took_s = record.first_token_s - record.granted_s
                _keep(self._slowness, record.engine_id, now, took_s / self._estimate_s(record))
        ended = [each for each in (*self._decoding, *started) if each.status == FINISHED and each.tbt_s is not None]
        self._decoding = [each for each in (*self._decoding, *started) if each.status == UNFINISHED]
        for record in ended:
            _keep(self._tbt, record.engine_id, now, record.tbt_s or 0.0)

    def slowness(self, station: Station, now: float) -> tuple[float | None, int]:
        """Return the median of first-token time over estimate and the number of samples, standing requests included."""
        standing = [
            (now, ratio)
            for each in station.live.values()
            if each.first_token_s is None
            and each.granted_s is not None
            and (ratio := (now - each.granted_s) / self._estimate_s(each)) > 1.0
        ]
        return _median((*_recent(self._slowness, station.engine_id, now), *standing))

    def tbt(self, station: Station, now: float) -> tuple[float | None, int]:
        """Return the median of the mean times between tokens in seconds, and the number of samples."""
        return _median(_recent(self._tbt, station.engine_id, now))

    def _estimate_s(self, record: RequestRecord) -> float:
        return self._profile.prefill_s(record.request.prompt_tokens, record.hit_tokens or 0) + _SLACK_S


def _keep(samples: _Samples, engine_id: str, now: float, value: float) -> None:
    samples.setdefault(engine_id, deque()).append((now, value))


def _recent(samples: _Samples, engine_id: str, now: float) -> Iterable[tuple[float, float]]:
    """Return the samples of the last seconds; older ones are dropped."""
    kept = samples.get(engine_id, deque())
    while kept and kept[0][0] < now - SPEED_WINDOW_S:
        kept.popleft()
    return kept


def _median(samples: Sequence[tuple[float, float]] | Iterable[tuple[float, float]]) -> tuple[float | None, int]:
    values = [value for _, value in samples]
    return (median(values), len(values)) if values else (None, 0)
