"""What one node holds, from its pages and events to changes of the table that routing reads.

A block is held while one payload of it lies on one medium: payloads of several ranks, and copies in DRAM and on SSD,
have one routing key. Events may repeat what a page showed, so that copies are a set and never counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kvstore.events.kv_events import AllBlocksCleared, BlockStored, EventBatch
from kvstore.events.node_blocks import node_blocks, payload_id
from kvstore.tiers.block_facts import BlockFacts, Medium

_MEDIA: dict[str | None, int] = {"CPU": 0, "STORAGE": 1}


class Change(NamedTuple):
    """What became of blocks, by their routing keys: stored (or removed) all of them; None: everything is gone."""

    stored: bool
    keys: list[int] | None


class NodeContents:
    """Mutable: `_copies`, at most `max_blocks` of them; blocks beyond are not known and not loaded."""

    def __init__(self, max_blocks: int) -> None:
        self._max_blocks = max_blocks
        self._copies: dict[int, tuple[int, ...]] = {}
        self.dropped = 0
        """Blocks that were told of and not taken in for the limit."""

    def __len__(self) -> int:
        return len(self._copies)

    def clear(self) -> None:
        """Forget everything."""
        self._copies.clear()

    def page(self, blocks: Iterable[tuple[BlockFacts, Sequence[Medium]]]) -> list[int]:
        """Take in a page and return the keys that are new; blocks that nobody told a key of are left out."""
        new = []
        for facts, media in blocks:
            if facts.routing_key:
                payload = payload_id(facts.key) << 1
                copies = [payload | _MEDIA[medium] for medium in media if medium in _MEDIA]
                if [copy for copy in copies if self._add(facts.routing_key, copy)]:
                    new.append(facts.routing_key)
        return list(dict.fromkeys(new))

    def apply(self, batch: EventBatch) -> list[Change]:
        """Take in a batch of events and return what changes by it, in order."""
        changes: list[Change] = []
        for event in batch.events:
            if isinstance(event, AllBlocksCleared):
                self.clear()
                changes.append(Change(False, None))
                continue
            medium = _MEDIA.get(event.medium)
            if medium is None:
                continue
            stored = isinstance(event, BlockStored)
            change = self._add if stored else self._remove
            keys = [key for key, payload in node_blocks(event) if change(key, payload << 1 | medium)]
            if keys:
                changes.append(Change(stored, keys))
        return changes

    def check(self) -> None:
        """Raise AssertionError unless each block has a copy and the limit is kept."""
        if len(self._copies) > self._max_blocks:
            raise AssertionError(f"{len(self._copies)} blocks are over {self._max_blocks}")
        if not all(copies and len(set(copies)) == len(copies) for copies in self._copies.values()):
            raise AssertionError("a block is kept without a copy, or with one copy twice")

    def _add(self, key: int, copy: int) -> bool:
        """Note a copy; returns whether the block was not held before."""
        known = self._copies.get(key)
        if known is None:
            if len(self._copies) >= self._max_blocks:
                self.dropped += 1
                return False
            self._copies[key] = (copy,)
            return True
        if copy not in known:
            self._copies[key] = (*known, copy)
        return False

    def _remove(self, key: int, copy: int) -> bool:
        """Forget a copy; returns whether it was the block's last one."""
        known = self._copies.get(key, ())
        if copy not in known:
            return False
        left = tuple(each for each in known if each != copy)
        if left:
            self._copies[key] = left
            return False
        del self._copies[key]
        return True
