"""An optional log of all simulation events."""

from __future__ import annotations

from typing import Protocol


class EventLog(Protocol):
    """Receives all events in order."""

    def note(self, at_s: float, kind: str, request_id: str, engine_id: str) -> None:
        """Record an event at this virtual time; ids that do not apply are empty."""
