"""Keeps the sentence above the Fleet page readable: it changes every few seconds at most, unless an engine is lost."""

from __future__ import annotations

from web.live.verdict import FleetVerdict

STAYS_S = 5.0


class SteadyVerdict:
    """Mutable: the sentence shown, and since when."""

    def __init__(self) -> None:
        self._shown: FleetVerdict | None = None
        self._at = 0.0

    @property
    def shown(self) -> FleetVerdict | None:
        """The sentence that stands at this moment."""
        return self._shown

    def show(self, verdict: FleetVerdict, at: float) -> FleetVerdict:
        """Return what is shown at unix second `at`: the new sentence once the one before has stood for STAYS_S.

        That an engine is lost is said at once.
        """
        stands = 0 <= at - self._at < STAYS_S and not (_is_lost(verdict) and not _is_lost(self._shown))
        if self._shown is None or (verdict != self._shown and not stands):
            self._shown, self._at = verdict, at
        return self._shown


def _is_lost(verdict: FleetVerdict | None) -> bool:
    return verdict is not None and verdict.shape == "lost" and bool(verdict.engine_id)
