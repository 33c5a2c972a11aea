"""An engine's cache groups, and the blocks held by all groups of a part.

vLLM keeps the KV cache of a hybrid model in groups of layers, each with separate blocks and evictions, and names the
group in its events. All groups use the hashes of the same chain, so the hashes in a full-attention group's events give
the blocks of all other groups their keys. Sparse groups can be read only this way: an event of a sliding window or of
Mamba lists fewer hashes than its token ids fill (vllm#44451).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from kvstore.events.engine_block_map import EngineBlockMap
from kvstore.events.kv_events import BlockRemoved, BlockStored, in_engine_memory
from kvstore.index.cache_tails import FULL, STATE, WINDOW, Tail

PART_OF_KIND = {
    "full_attention": FULL,
    "mla_attention": FULL,
    "sink_full_attention": FULL,
    "sliding_window": WINDOW,
    "sliding_window_mla": WINDOW,
    "mamba": STATE,
}
"""vLLM's cache kinds with a known rule for hits."""
MAX_GROUPS = 64
_PARTS = (FULL, WINDOW, STATE)
"""In the order in which an index must receive them: it keeps no tail of a block without full attention."""


class PartChange(NamedTuple):
    """Keys that all groups of a part hold, or that one of them evicted."""

    part: str
    stored: bool
    keys: list[int]


class _Group(NamedTuple):
    """One group as described by its first event. `times` counts how often it stored each hash."""

    part: str
    """Empty for kinds without a known rule."""
    kind: str
    block_tokens: int
    window: int
    times: dict[int | bytes, int]


class CacheGroups:
    """One engine's cache groups, and the block map of its first full-attention group, which keys all blocks.

    Several windows count as the widest one, and several groups of one part hold a block if each group does: hits can be
    underestimated, but never overestimated. A model without full attention is matched by one group, block by block from
    the start. Mutable state: the groups, the primary one, and the tail.
    """

    def __init__(self, blocks: EngineBlockMap, block_tokens: int) -> None:
        self._blocks = blocks
        self._block_tokens = block_tokens
        self.reset()

    def reset(self) -> None:
        """Forget all blocks and groups, because the engine's process is new."""
        self._groups: dict[int, _Group] = {}
        self._arrange()

    def cleared(self) -> None:
        """Forget every block but keep the groups."""
        for group in self._groups.values():
            group.times.clear()

    def learn(self, events: Iterable[object]) -> bool:
        """Learn the groups of a batch before it is applied. Return whether earlier index entries are invalid."""
        before, primary = set(self._groups), self._primary
        for event in events:
            if isinstance(event, BlockStored) and event.group_idx is not None and in_engine_memory(event):
                # All numbers out of range share one entry: an engine must not make the table grow without a limit.
                number = event.group_idx if 0 <= event.group_idx < MAX_GROUPS else MAX_GROUPS
                if number not in self._groups:
                    self._groups[number] = _described(event)
        if len(before) == len(self._groups):
            return False
        self._arrange()
        if primary is None:
            return False
        parts = {self._groups[item].part for item in before if item != primary} | {FULL}
        return primary != self._primary or any(
            self._groups[other].part in parts for other in self.others if other not in before
        )

    def is_primary(self, event: BlockStored | BlockRemoved) -> bool:
        """Return whether the event's group gives blocks their keys. Engines without groups have only this one."""
        return event.group_idx is None or event.group_idx == self._primary

    def other_stored(self, event: BlockStored) -> list[PartChange]:
        """Count the blocks of another group, and return the blocks that all groups of its part now hold."""
        group = self._other(event.group_idx)
        if group is None or event.block_size != self._block_tokens:
            return []
        fresh = []
        for block_hash_ in event.block_hashes:
            # Popped, so that the block becomes the youngest: at the limit the oldest leave.
            times = group.times.pop(block_hash_, 0)
            group.times[block_hash_] = times + 1
            if not times:
                fresh.append(block_hash_)
        # Tails of other parts have waited for full attention to hold the block, and count from now on.
        changes = self.held_by_all(fresh, _PARTS if group.part == FULL else (group.part,))
        over = len(group.times) - self._blocks.max_blocks
        if over > 0:
            oldest = list(islice(group.times, over))
            for item in oldest:
                del group.times[item]
            changes += self._gone(group.part, oldest)
        return changes

    def other_removed(self, event: BlockRemoved) -> list[PartChange]:
        """Uncount the blocks, and return the blocks that the group no longer holds."""
        group = self._other(event.group_idx)
        if group is None:
            return []
        gone = []
        for block_hash_ in event.block_hashes:
            times = group.times.get(block_hash_, 0)
            if times > 1:
                group.times[block_hash_] = times - 1
            elif times:
                del group.times[block_hash_]
                gone.append(block_hash_)
        return self._gone(group.part, gone)

    def _arrange(self) -> None:
        """Choose the group that keys all blocks, and derive from the others what a hit needs besides its blocks."""
        self.problem = ""
        """Why this engine's hits are uncertain. Empty if all its groups are understood."""
        # Full attention first: its events list all blocks, so that their keys name those of the sparse groups.
        usable = sorted((group.part != FULL, number) for number, group in self._groups.items() if group.part)
        self._primary = usable[0][1] if usable else None
        self.others: list[int] = []
        """Other groups that hits depend on."""
        window_tokens, states = 1, False
        for number, group in self._groups.items():
            if not group.part:
                self.problem = f"cache group {number} is of unknown kind “{group.kind}”; hits may be overestimated"
            elif number == self._primary:
                continue
            elif group.block_tokens != self._block_tokens:
                self.problem = (
                    f"cache group {number} has blocks of {group.block_tokens} tokens, the pool's keys of "
                    f"{self._block_tokens}; hits may be overestimated"
                )
            else:
                self.others.append(number)
                states = states or group.part == STATE
                window_tokens = max(window_tokens, group.window if group.part == WINDOW else 1)
        # The token that is computed next is in its own window.
        self.tail = Tail(-(-(window_tokens - 1) // self._block_tokens), states)

    def _other(self, number: int | None) -> _Group | None:
        return self._groups[number] if number in self.others else None

    def held_by_all(self, hashes: Iterable[int | bytes], parts: Iterable[str] = _PARTS) -> list[PartChange]:
        """Return, for each part, the keys of these hashes that the primary group and all groups of the part hold."""
        keyed = [(hash_, key) for hash_ in hashes for key in self._blocks.keys_of(hash_)]
        changes = []
        for part in parts:
            groups = [self._groups[other].times for other in self.others if self._groups[other].part == part]
            if groups or part == FULL:
                keys = [key for hash_of_key, key in keyed if all(hash_of_key in times for times in groups)]
                if keys:
                    changes.append(PartChange(part, True, keys))
        return changes

    def _gone(self, part: str, hashes: Iterable[int | bytes]) -> list[PartChange]:
        keys = [key for hash_ in hashes for key in self._blocks.keys_of(hash_)]
        return [PartChange(part, False, keys)] if keys else []


def _described(event: BlockStored) -> _Group:
    """Return the event's group. If an engine names no kind, its first group is full attention."""
    kind, window = event.kv_cache_spec_kind, event.kv_cache_spec_sliding_window or 0
    part = (FULL if event.group_idx == 0 else "") if kind is None else PART_OF_KIND.get(kind, "")
    if (part == WINDOW and window < 1) or not 0 <= (event.group_idx or 0) < MAX_GROUPS:
        part = ""
    return _Group(part, (kind or "unnamed")[:32], event.block_size, window, {})
