"""The bounded prefix snapshot of a region, sent in heartbeats: the segments that its engines used last."""

from __future__ import annotations

from collections import OrderedDict

from simulator.regions.prompt import Prompt

SNAPSHOT_SEGMENTS = 256
"""Segments in a snapshot: 2 kB of keys."""


class SimulatedPrefixSnapshot:
    """Keeps segments that many requests share, since each of them uses them again.

    Mutable state: `_latest`, whose last entry was used last.
    """

    def __init__(self, limit: int = SNAPSHOT_SEGMENTS) -> None:
        self._limit = limit
        self._latest: OrderedDict[int, None] = OrderedDict()

    def note(self, prompt: Prompt) -> None:
        """Record a prompt that was sent to an engine of the region."""
        for key, _, _ in prompt.deepest_first:
            self._latest[key] = None
            self._latest.move_to_end(key)
        while len(self._latest) > self._limit:
            self._latest.popitem(last=False)

    def keys(self) -> frozenset[int]:
        """Return the keys to publish."""
        return frozenset(self._latest)


def published_match(prompt: Prompt, keys: frozenset[int]) -> int:
    """Return how many leading tokens of the prompt a published snapshot holds."""
    return next((end for key, end, _ in prompt.deepest_first if key in keys), 0)
