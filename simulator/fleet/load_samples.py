"""The distribution of in-flight work over the engines, sampled at equal intervals of virtual time."""

from __future__ import annotations

from routing.ledger.fleet_view import FleetView
from routing.values.load_cv import LoadSmoother, load_cv


class LoadSamples:
    """Samples of the pending tokens (prefill queued for an engine or running there) of each accepting engine.

    Their coefficient of variation is computed as in the live gateway: routing.values.load_cv. Mutable.
    """

    def __init__(self, every_s: float = 1.0, *, keep: bool = False) -> None:
        if every_s <= 0:
            raise ValueError(f"samples need a step above 0 s, not {every_s}")
        self.every_s = every_s
        self.series: list[tuple[float, list[int]]] = []
        """(moment, in-flight tokens of each accepting engine), where `keep` is set."""
        self._keep = keep
        self._smoother = LoadSmoother()
        self._sum = 0.0
        self._count = 0

    @property
    def mean_cv(self) -> float:
        """Mean coefficient of variation over the samples; 0 without samples."""
        return self._sum / self._count if self._count else 0.0

    def take(self, view: FleetView, now: float) -> None:
        """Sample the fleet's current state."""
        pending = {
            view.roster.engine_ids[target]: float(view.load.in_flight_tokens[target])
            for target in view.roster.accepting
        }
        self._count += 1
        self._sum += load_cv(self._smoother.update(pending, now))
        if self._keep:
            self.series.append((now, [view.load.in_flight_tokens[target] for target in view.roster.accepting]))
