"""Re-keys one engine's KV events: its own block hashes become our block keys.

Engines seed and compute their hashes as they like, so the hash only serves to find a block again;
the key is computed from the token ids. The same hash can be stored several times and must then be
removed as often before the block is gone (engine notes, KV events), hence the counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, islice

from kvstore.events.event_salt import Medium
from kvstore.events.kv_events import BlockRemoved, BlockStored
from kvstore.keys.block_keys import extend_key, media_block_key, pack_tokens

_TOKEN_BYTES = 4
_Name = int | bytes | tuple[int | bytes, int]
"""An engine's hash of a block, or that of a block with media and the number of one of them."""
_BATCH_SHARE = 128
"""One part in so many leaves at once when the limit is exceeded."""


class EngineBlockMap:
    """Engine hash → (our key, times stored), at most `max_blocks` hashes; the oldest leave first.

    Mutable state: `_blocks`, `_copies`, which counts the hashes that stand for one key, and
    `_dropped`, the keys that left for the limit and were not asked for yet.
    """

    def __init__(self, max_blocks: int = 1_000_000) -> None:
        if max_blocks < 1:
            raise ValueError(f"a block map needs at least 1 block, not {max_blocks}")
        self.max_blocks = max_blocks
        self.orphans = 0
        """Events whose parent block was unknown, and which could therefore not be keyed."""
        self._blocks: dict[_Name, tuple[int, int]] = {}
        self._copies: dict[int, int] = {}
        self._dropped: list[int] = []

    def __len__(self) -> int:
        return len(self._blocks)

    def key_of(self, block_hash: int | bytes) -> int | None:
        """Return our key of a block that the engine is known to hold."""
        known = self._blocks.get(block_hash)
        return known[0] if known is not None else None

    def stored(self, event: BlockStored, seed: int) -> list[int]:
        """Return our keys for the event's blocks, in order; [] where its parent is unknown."""
        parent = seed
        if event.parent_block_hash is not None:
            known = self._blocks.get(event.parent_block_hash)
            if known is None:
                self.orphans += 1
                return []
            parent = known[0]
        view = memoryview(pack_tokens(event.token_ids))
        width = event.block_size * _TOKEN_BYTES
        keys: list[int] = []
        for position, block_hash in enumerate(event.block_hashes):
            parent = extend_key(parent, view[position * width : (position + 1) * width])
            keys.append(parent)
            self._count(block_hash, parent)
        return keys

    def stored_media(self, event: BlockStored, media: Sequence[Sequence[Medium]], seed: int) -> list[int]:
        """Return the keys of the media in the event's blocks, in order; blocks after them stay unkeyed."""
        keys: list[int] = []
        for block_hash, media_there in zip(event.block_hashes, media, strict=False):
            for number, each in enumerate(media_there):
                keys.append(media_block_key(seed, each.name, each.place))
                self._count((block_hash, number), keys[-1])
        return keys

    def removed(self, event: BlockRemoved) -> list[int]:
        """Return the keys that are gone now; hashes stored more often than removed stay."""
        gone: list[int] = []
        for block_hash in event.block_hashes:
            if block_hash in self._blocks:
                self._take_out(block_hash, gone)
                continue
            for number in count():
                if (block_hash, number) not in self._blocks:
                    break
                self._take_out((block_hash, number), gone)
        return gone

    def _take_out(self, name: _Name, gone: list[int]) -> None:
        key, times = self._blocks[name]
        if times > 1:
            self._blocks[name] = (key, times - 1)
            return
        del self._blocks[name]
        if self._forget(key):
            gone.append(key)

    def take_dropped(self) -> list[int]:
        """Return the keys that left for the limit since the last call; the index must forget them too."""
        dropped, self._dropped = self._dropped, []
        return [key for key in dropped if key not in self._copies]

    def cleared(self) -> None:
        """Forget every block."""
        self._blocks.clear()
        self._copies.clear()
        self._dropped.clear()

    def keys(self) -> set[int]:
        """Return our keys of all blocks the engine is known to hold."""
        return set(self._copies)

    def check(self) -> None:
        """Raise AssertionError unless the counts agree and the limit is kept."""
        copies: dict[int, int] = {}
        for key, times in self._blocks.values():
            if times < 1:
                raise AssertionError(f"key {key:#x} is kept {times} times")
            copies[key] = copies.get(key, 0) + 1
        if copies != self._copies:
            raise AssertionError("copies per key do not agree with the blocks")
        if len(self._blocks) > self.max_blocks:
            raise AssertionError(f"{len(self._blocks)} blocks are over {self.max_blocks}")

    def _count(self, block_hash: _Name, key: int) -> None:
        known = self._blocks.pop(block_hash, None)
        if known is None:
            times = 1
            self._copies[key] = self._copies.get(key, 0) + 1
        elif known[0] == key:
            times = known[1] + 1
        else:
            self._forget(known[0])
            times = 1
            self._copies[key] = self._copies.get(key, 0) + 1
        self._blocks[block_hash] = (key, times)
        if len(self._blocks) > self.max_blocks:
            for oldest in list(islice(self._blocks, max(1, self.max_blocks // _BATCH_SHARE))):
                forgotten, _ = self._blocks.pop(oldest)
                if self._forget(forgotten):
                    self._dropped.append(forgotten)

    def _forget(self, key: int) -> bool:
        left = self._copies[key] - 1
        if left:
            self._copies[key] = left
            return False
        del self._copies[key]
        return True
