"""Whether an engine's KV events name the cache salts of its blocks."""

from __future__ import annotations

ENOUGH = 8
"""Salted prompts computed in full, none of which the events named a salt for."""


class SaltsSeen:
    """Evidence about one engine process. Mutable: all of it. `named` counts the events with a salt so far."""

    def __init__(self, named: int = 0) -> None:
        self.missing = False
        """Its events name no salts, so that the owner of the blocks in them is unknown."""
        self.named = named
        self._unnamed = 0
        self._proved = False

    def note(self, named: int) -> bool:
        """Note a salted prompt that was computed; returns whether `missing` changed. One named salt proves them all."""
        self._proved = self._proved or named > self.named
        self.named = named
        self._unnamed = 0 if self._proved else self._unnamed + 1
        before, self.missing = self.missing, self._unnamed >= ENOUGH
        return before != self.missing
