"""The engine model's time: real time, scaled, that can be made to stand or to crawl."""

from __future__ import annotations

import time


class ModelClock:
    """Model seconds since the engine started. Mutable: its rate, since when, and the last moment told."""

    def __init__(self, scale: float) -> None:
        self._scale = scale
        self._rate = 1.0
        self._since = time.monotonic()
        self._base = 0.0
        self._told = 0.0

    def now(self) -> float:
        """Return this moment; it never goes back."""
        self._told = max(self._told, self._base + (time.monotonic() - self._since) * self._speed)
        return self._told

    def run_at(self, rate: float) -> None:
        """Let time pass at this share of its usual speed from now on; 0 stops it."""
        self._base, self._since = self.now(), time.monotonic()
        self._rate = rate

    def due_in(self, moment: float) -> float | None:
        """Return the real seconds until a moment; None while time stands."""
        return max(0.0, (moment - self.now()) / self._speed) if self._rate else None

    def has_come_to(self, moment: float) -> None:
        """Take note that a timer for this moment rang: event loops round to milliseconds, sometimes down."""
        self._told = max(self._told, moment)

    @property
    def _speed(self) -> float:
        return self._scale * self._rate
