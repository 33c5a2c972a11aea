"""The index of one engine as a set of keys, for tests of its events."""

from __future__ import annotations

from collections.abc import Sequence

from kvstore.events.cache_groups import PartChange
from kvstore.index.cache_tails import NO_TAIL, STATE, WINDOW, Tail


class Held:
    """Apply the changes of an event feed and count the engine's restarts."""

    def __init__(self) -> None:
        self.keys: set[int] = set()
        self.restarts = 0
        self.media: dict[str, int] = {}
        self.tail = NO_TAIL
        self.tiers: dict[str, set[int]] = {}
        self.parts: dict[str, set[int]] = {WINDOW: set(), STATE: set()}

    def stored(self, keys: Sequence[int], parent: int | None = None) -> None:
        self.keys |= set(keys)

    def removed(self, keys: Sequence[int]) -> None:
        self.keys -= set(keys)

    def tail_declared(self, tail: Tail) -> None:
        self.tail = tail

    def tail_changed(self, change: PartChange) -> None:
        held = self.parts[change.part]
        (held.update if change.stored else held.difference_update)(change.keys)

    def tier_changed(self, tier: str, stored: bool, keys: Sequence[int]) -> None:
        held = self.tiers.setdefault(tier, set())
        (held.update if stored else held.difference_update)(keys)

    def medium_stored(self, name: str, blocks: int) -> None:
        self.media[name] = max(blocks, self.media.get(name, 0))

    def cleared(self) -> None:
        self.keys.clear()
        self.tiers.clear()
        self.tail = NO_TAIL
        for held in self.parts.values():
            held.clear()

    def restarted(self) -> None:
        self.restarts += 1
        self.cleared()
