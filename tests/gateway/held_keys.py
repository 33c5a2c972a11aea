"""The index of one engine as a set of keys, for tests of what events tell it."""

from __future__ import annotations

from collections.abc import Sequence


class Held:
    """Takes what an event feed says, and counts the engine's restarts."""

    def __init__(self) -> None:
        self.keys: set[int] = set()
        self.restarts = 0

    def stored(self, keys: Sequence[int]) -> None:
        self.keys |= set(keys)

    def removed(self, keys: Sequence[int]) -> None:
        self.keys -= set(keys)

    def cleared(self) -> None:
        self.keys.clear()

    def restarted(self) -> None:
        self.restarts += 1
        self.keys.clear()
