"""Contents of one node: converts its pages and events to changes of the routing table.

A block is held while one of its payloads is on any medium: payloads of several ranks, and copies in DRAM and on SSD,
have the same routing key. It counts as in DRAM while one payload is in DRAM. Events can repeat the contents of a page,
so copies are stored as a set and never counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kvstore.events.kv_events import AllBlocksCleared, BlockStored, EventBatch
from kvstore.events.node_blocks import node_blocks, payload_id
from kvstore.tiers.block_facts import BlockFacts, Medium

_MEDIA: dict[str | None, int] = {"CPU": 0, "STORAGE": 1}
_State = bool | None
"""Whether a block is in DRAM; None: it is not held."""


class ContentsChange(NamedTuple):
    """One change of blocks, given by routing keys: stored or removed. None: everything was removed."""

    stored: bool
    keys: list[int] | None
    dram: bool = True
    """For stored blocks: True if they are in DRAM, False if only on SSD."""


class NodeContents:
    """The blocks of one node. Mutable: `_copies`, at most `max_blocks`; further blocks are unknown and not loaded."""

    def __init__(self, max_blocks: int) -> None:
        self._max_blocks = max_blocks
        self._copies: dict[int, tuple[int, ...]] = {}
        self.dropped = 0
        """Reported blocks that were ignored because of the limit."""

    def __len__(self) -> int:
        return len(self._copies)

    def clear(self) -> None:
        """Remove all blocks."""
        self._copies.clear()

    def page(self, blocks: Iterable[tuple[BlockFacts, Sequence[Medium]]]) -> list[ContentsChange]:
        """Apply a page; return the changes. Blocks without a reported key are ignored."""
        before: dict[int, _State] = {}
        for facts, media in blocks:
            if facts.routing_key:
                before.setdefault(facts.routing_key, self._state(facts.routing_key))
                for medium in media:
                    if medium in _MEDIA:
                        self._add(facts.routing_key, payload_id(facts.key) << 1 | _MEDIA[medium])
        return self._changes(before)

    def apply(self, batch: EventBatch) -> list[ContentsChange]:
        """Apply a batch of events; return the changes in order."""
        changes: list[ContentsChange] = []
        for event in batch.events:
            if isinstance(event, AllBlocksCleared):
                self.clear()
                changes.append(ContentsChange(False, None))
                continue
            medium = _MEDIA.get(event.medium)
            if medium is None:
                continue
            stored = isinstance(event, BlockStored)
            before: dict[int, _State] = {}
            for key, payload in node_blocks(event):
                before.setdefault(key, self._state(key))
                (self._add if stored else self._remove)(key, payload << 1 | medium)
            changes += self._changes(before)
        return changes

    def check(self) -> None:
        """Raise AssertionError unless each block has a copy and the limit holds."""
        if len(self._copies) > self._max_blocks:
            raise AssertionError(f"{len(self._copies)} blocks are over {self._max_blocks}")
        if not all(copies and len(set(copies)) == len(copies) for copies in self._copies.values()):
            raise AssertionError("a block is kept without a copy, or with one copy twice")

    def _state(self, key: int) -> _State:
        """Return whether a block is held, and whether in DRAM."""
        copies = self._copies.get(key)
        return None if copies is None else any(copy & 1 == _MEDIA["CPU"] for copy in copies)

    def _changes(self, before: dict[int, _State]) -> list[ContentsChange]:
        """Return one change for each of these blocks."""
        states = [(key, self._state(key), was) for key, was in before.items()]
        gone = [key for key, state, was in states if state is None and was is not None]
        changes = [ContentsChange(False, gone)] if gone else []
        for dram in (True, False):
            keys = [key for key, state, was in states if state is dram and was is not dram]
            changes += [ContentsChange(True, keys, dram)] if keys else []
        return changes

    def _add(self, key: int, copy: int) -> None:
        """Add a copy, within the limit."""
        known = self._copies.get(key)
        if known is None:
            if len(self._copies) >= self._max_blocks:
                self.dropped += 1
                return
            self._copies[key] = (copy,)
        elif copy not in known:
            self._copies[key] = (*known, copy)

    def _remove(self, key: int, copy: int) -> None:
        """Remove a copy, and the block with its last copy."""
        left = tuple(item for item in self._copies.get(key, ()) if item != copy)
        if left:
            self._copies[key] = left
        else:
            self._copies.pop(key, None)
