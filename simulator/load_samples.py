"""How the outstanding work is spread over the engines, looked at in equal steps of virtual time."""

from __future__ import annotations

from math import sqrt

from routing.fleet import FleetView


class LoadSamples:
    """Samples of the outstanding work (prefill bound to an engine or running there) of each accepting engine.

    The coefficient of variation over the engines is of seconds of work that are left, as in the
    scheduling study (§3), and 0 while nothing is; the series is of prompt tokens. Mutable.
    """

    def __init__(self, every_s: float = 1.0, *, keep: bool = False) -> None:
        if every_s <= 0:
            raise ValueError(f"samples need a step above 0 s, not {every_s}")
        self.every_s = every_s
        self.series: list[tuple[float, list[int]]] = []
        """(moment, outstanding tokens of each accepting engine), where `keep` asks for it."""
        self._keep = keep
        self._sum = 0.0
        self._count = 0

    @property
    def mean_cv(self) -> float:
        """Mean over the samples of the coefficient of variation; 0 without any."""
        return self._sum / self._count if self._count else 0.0

    def take(self, view: FleetView, now: float) -> None:
        """Look at the fleet as it is."""
        left_s = [max(view.ready_at[target] - now, 0.0) for target in view.accepting]
        total_s = sum(left_s)
        self._count += 1
        if total_s:
            mean_s = total_s / len(left_s)
            self._sum += sqrt(sum((each - mean_s) ** 2 for each in left_s) / len(left_s)) / mean_s
        if self._keep:
            self.series.append((now, [view.outstanding_tokens[target] for target in view.accepting]))
