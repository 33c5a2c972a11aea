"""Keeps the sentence above the Fleet page readable: it changes only every few seconds, unless an engine is lost."""

from __future__ import annotations

from web.live.verdict import FleetVerdict

STAYS_S = 5.0


class SteadyVerdict:
    """Mutable state: the current sentence, and since when it is shown."""

    def __init__(self) -> None:
        self._shown: FleetVerdict | None = None
        self._at = 0.0

    @property
    def shown(self) -> FleetVerdict | None:
        """The current sentence."""
        return self._shown

    def show(self, verdict: FleetVerdict, at: float) -> FleetVerdict:
        """Return the sentence to show at Unix second `at`: the new one after the previous one was shown for STAYS_S.

        A lost engine is reported at once.
        """
        # Below 0 the clock was set back: the sentence would stay until its time is reached again.
        keeps = 0 <= at - self._at < STAYS_S and not (_is_lost(verdict) and not _is_lost(self._shown))
        if self._shown is None or (verdict != self._shown and not keeps):
            self._shown, self._at = verdict, at
        return self._shown


def _is_lost(verdict: FleetVerdict | None) -> bool:
    return verdict is not None and verdict.shape == "lost" and bool(verdict.engine_id)
