"""An optional log of all events in a simulation."""

from __future__ import annotations

from typing import Protocol


class EventLog(Protocol):
    """Receives each event in order."""

    def note(self, at_s: float, kind: str, request_id: str, engine_id: str) -> None:
        """Record an event at this virtual moment; ids are empty where they do not apply."""
