"""An optional log of everything that happens in a simulation."""

from __future__ import annotations

from typing import Protocol


class EventLog(Protocol):
    """Told of each event in order."""

    def note(self, at_s: float, kind: str, request_id: str, engine_id: str) -> None:
        """Something happened at this virtual moment; ids are empty where they do not apply."""
