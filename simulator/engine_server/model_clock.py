"""The engine model's time: scaled real time that can be stopped or slowed."""

from __future__ import annotations

import time


class ModelClock:
    """Model seconds since the engine started. Mutable: the clock's rate, its start, and the latest returned time."""

    def __init__(self, scale: float) -> None:
        self._scale = scale
        self._rate = 1.0
        self._since = time.monotonic()
        self._base = 0.0
        self._latest = 0.0

    def now(self) -> float:
        """Return the current time, which never goes back."""
        self._latest = max(self._latest, self._base + (time.monotonic() - self._since) * self._speed)
        return self._latest

    def run_at(self, rate: float) -> None:
        """Set the rate as a share of the usual speed; 0 stops the clock."""
        self._base, self._since = self.now(), time.monotonic()
        self._rate = rate

    def due_in(self, moment: float) -> float | None:
        """Return the real seconds until a model time; None while the clock is stopped."""
        return max(0.0, (moment - self.now()) / self._speed) if self._rate else None

    def has_come_to(self, moment: float) -> None:
        """Record that the timer for this time fired. Event loops round to milliseconds, sometimes down."""
        self._latest = max(self._latest, moment)

    @property
    def _speed(self) -> float:
        return self._scale * self._rate
