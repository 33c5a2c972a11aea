"""The bounded prefix snapshot of a region, sent in heartbeats: its most recently used segments."""

from __future__ import annotations

from collections import OrderedDict

from simulator.regions.prompt import Prompt

SNAPSHOT_SEGMENTS = 256
"""Number of segments in a snapshot, which gives 2 kB of keys."""


class SimulatedPrefixSnapshot:
    """Keeps the most recently used segments, which include those that many requests share.

    Mutable state: `_latest`, whose last entry is the most recently used.
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
