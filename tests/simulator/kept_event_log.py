"""The log of a simulated run, whose digest distinguishes two runs."""

from __future__ import annotations

import hashlib


class KeptEventLog:
    """Store every event as one line of text."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, at_s: float, kind: str, request_id: str, engine_id: str) -> None:
        """Store the event with its exact time."""
        self.lines.append(f"{at_s!r} {kind} {request_id} {engine_id}")

    def digest(self) -> str:
        """Return the SHA-256 of all lines as hex."""
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()
