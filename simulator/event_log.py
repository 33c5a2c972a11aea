"""An optional log of everything that happens in a simulation, whose digest tells two runs apart."""

from __future__ import annotations

import hashlib
from typing import Protocol


class EventLog(Protocol):
    """Told of each event in order."""

    def note(self, at_s: float, kind: str, request_id: str, engine_id: str) -> None:
        """Something happened at this virtual moment; ids are empty where they do not apply."""
        ...


class KeptEventLog:
    """Keeps every event as one line of text."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, at_s: float, kind: str, request_id: str, engine_id: str) -> None:
        """Keep the event, its time to the last bit."""
        self.lines.append(f"{at_s!r} {kind} {request_id} {engine_id}")

    def digest(self) -> str:
        """Return the SHA-256 of all lines as hex."""
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()
