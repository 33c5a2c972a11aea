"""Detects whether an engine's KV events name the cache salts of its blocks."""

from __future__ import annotations

ENOUGH = 8
"""Salted prompts computed in full without a salt in their events, after which salts count as missing."""


class SaltsSeen:
    """Evidence about one engine process. Mutable: all of it. `named` is the number of events with a salt so far."""

    def __init__(self, named: int = 0) -> None:
        self.missing = False
        """Whether its events name no salts, so that the blocks' owner is unknown."""
        self.named = named
        self._unnamed = 0
        self._proved = False

    def note(self, named: int) -> bool:
        """Record a computed salted prompt; return whether `missing` changed. One named salt resets it."""
        self._proved = self._proved or named > self.named
        self.named = named
        self._unnamed = 0 if self._proved else self._unnamed + 1
        before, self.missing = self.missing, self._unnamed >= ENOUGH
        return before != self.missing
