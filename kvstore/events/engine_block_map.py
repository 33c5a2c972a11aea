"""Map one engine's KV events from its block hashes to our block keys.

Engines seed their hashes differently, so a hash only identifies a block again; the key is computed from the token ids.
A hash can be stored several times and must then be removed as often before the block is gone (engine notes, KV events),
so the map counts them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import count, islice, takewhile

from kvstore.events.event_salt import Medium
from kvstore.events.kv_events import BlockRemoved, BlockStored
from kvstore.keys.block_keys import extend_key, media_block_key, pack_tokens

_TOKEN_BYTES = 4
_Name = int | bytes | tuple[int | bytes, int]
"""An engine's block hash, or that hash and the number of a medium in the block."""
_BATCH_SHARE = 128
"""One in this many entries is evicted at once when the limit is exceeded."""


class EngineBlockMap:
    """Engine hash → (our key, times stored), at most `max_blocks` hashes. The oldest are evicted first.

    Mutable state: `_blocks`, `_copies` (number of hashes per key), and `_dropped` (evicted keys that were not taken
    yet).
    """

    def __init__(self, max_blocks: int = 1_000_000) -> None:
        if max_blocks < 1:
            raise ValueError(f"a block map needs at least 1 block, not {max_blocks}")
        self.max_blocks = max_blocks
        self.orphans = 0
        """Number of events that could not be mapped because their parent block was unknown."""
        self._blocks: dict[_Name, tuple[int, int]] = {}
        self._copies: dict[int, int] = {}
        self._dropped: list[int] = []

    def __len__(self) -> int:
        return len(self._blocks)

    def key_of(self, block_hash: int | bytes) -> int | None:
        """Return our key of a block that the engine holds, None if unknown."""
        known = self._blocks.get(block_hash)
        return known[0] if known is not None else None

    def keys_of(self, block_hash: int | bytes) -> list[int]:
        """Return our keys of a block that the engine holds: its own key, or those of the media in it."""
        known = self._blocks.get(block_hash)
        if known is not None:
            return [known[0]]
        media = (self._blocks.get((block_hash, number)) for number in count())
        return [entry[0] for entry in takewhile(lambda item: item is not None, media) if entry is not None]

    def stored(self, event: BlockStored, seed: int) -> list[int]:
        """Return our keys of the event's blocks in order, [] if its parent is unknown."""
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

    def named(self, block_hashes: Sequence[int | bytes], keys: Sequence[int]) -> None:
        """Record blocks whose keys the engine has stated."""
        for block_hash, key in zip(block_hashes, keys, strict=True):
            self._count(block_hash, key)

    def stored_media(self, event: BlockStored, media: Sequence[Sequence[Medium]], seed: int) -> list[int]:
        """Return the keys of the media in the event's blocks in order. Blocks after them get no key."""
        keys: list[int] = []
        for block_hash, media_there in zip(event.block_hashes, media, strict=False):
            for number, medium in enumerate(media_there):
                keys.append(media_block_key(seed, medium.name, medium.position))
                self._count((block_hash, number), keys[-1])
        return keys

    def removed(self, event: BlockRemoved) -> list[int]:
        """Return the removed keys. Hashes that were stored more often than removed stay."""
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
        """Return the keys evicted since the last call. The index must forget them too."""
        dropped, self._dropped = self._dropped, []
        # A key may have been stored again since.
        return [key for key in dropped if key not in self._copies]

    def cleared(self) -> None:
        """Forget every block."""
        self._blocks.clear()
        self._copies.clear()
        self._dropped.clear()

    def keys(self) -> set[int]:
        """Return our keys of all blocks that the engine holds, as far as known."""
        return set(self._copies)

    def check(self) -> None:
        """Raise AssertionError if the counts disagree or exceed the limit."""
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
        # Popped, so that the block becomes the youngest: at the limit the oldest leave.
        known = self._blocks.pop(block_hash, None)
        if known is None:
            times = 1
            self._copies[key] = self._copies.get(key, 0) + 1
        elif known[0] == key:
            times = known[1] + 1
        else:
            # The hash names another block now.
            self._forget(known[0])
            times = 1
            self._copies[key] = self._copies.get(key, 0) + 1
        self._blocks[block_hash] = (key, times)
        if len(self._blocks) > self.max_blocks:
            # In batches: the oldest entry of a dict is behind all those that were deleted before it.
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


class TierBlocks:
    """Blocks in one engine's lower tiers: per tier, engine hash → (our keys, times stored), with a total limit.

    A hash of LMCache names a chunk of several blocks. An event without token ids, the default of vLLM's offloading,
    refers to blocks that the engine holds in memory under the same hashes at that moment. Mutable state: `_tiers`,
    `_copies` (number of hashes per key of a tier), and `_dropped` as in the block map.
    """

    def __init__(self, memory: EngineBlockMap, block_tokens: int) -> None:
        self._memory, self._block_tokens = memory, block_tokens
        self._tiers: dict[str, dict[int | bytes, tuple[tuple[int, ...], int]]] = {}
        self._copies: Counter[tuple[str, int]] = Counter()
        self._dropped: list[tuple[str, int]] = []

    def __len__(self) -> int:
        return sum(map(len, self._tiers.values()))

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of hashes per tier, omitting empty tiers."""
        return {tier: len(blocks) for tier, blocks in sorted(self._tiers.items()) if blocks}

    def stored(self, tier: str, event: BlockStored, seed: int | None) -> list[int]:
        """Return our keys of the event's blocks in order, as far as they can be computed.

        `seed` is that of a prompt's first block, None if its salt is unknown.
        """
        # Known hashes first: a block that is offloaded was computed here, so memory has its key.
        named = [self._known(block_hash_) for block_hash_ in event.block_hashes]
        if not all(named):
            # Token ids are the second choice: vLLM's offloading sends none by default.
            named = self._computed(event, seed) or named
        for block_hash, keys in zip(event.block_hashes, named, strict=True):
            if keys:
                self._count(tier, block_hash, keys)
        return [key for keys in named for key in keys]

    def removed(self, tier: str, event: BlockRemoved) -> list[int]:
        """Return the keys that the tier no longer holds."""
        blocks, gone = self._tiers.get(tier, {}), []
        for block_hash in event.block_hashes:
            keys, times = blocks.get(block_hash, ((), 0))
            if times > 1:
                blocks[block_hash] = (keys, times - 1)
            elif times:
                del blocks[block_hash]
                gone += self._forget(tier, keys)
        return gone

    def take_dropped(self) -> list[tuple[str, int]]:
        """Return (tier, key) of entries evicted since the last call."""
        dropped, self._dropped = self._dropped, []
        return [item for item in dropped if item not in self._copies]

    def cleared(self) -> None:
        """Forget every block."""
        self._tiers.clear()
        self._copies.clear()
        self._dropped.clear()

    def keys(self, tier: str) -> set[int]:
        """Return our keys of all blocks that the tier holds, as far as known."""
        return {key for name, key in self._copies if name == tier}

    def check(self) -> None:
        """Raise AssertionError if the counts disagree or exceed the limit."""
        held = Counter(
            (tier, key) for tier, blocks in self._tiers.items() for keys, _ in blocks.values() for key in keys
        )
        if held != self._copies or any(times < 1 for blocks in self._tiers.values() for _, times in blocks.values()):
            raise AssertionError("copies per key of a tier do not agree with its blocks")
        if len(self) > self._memory.max_blocks:
            raise AssertionError(f"{len(self)} blocks of tiers are over {self._memory.max_blocks}")

    def _known(self, block_hash: int | bytes) -> tuple[int, ...]:
        key = self._memory.key_of(block_hash)
        if key is not None:
            return (key,)
        return next((blocks[block_hash][0] for blocks in self._tiers.values() if block_hash in blocks), ())

    def _computed(self, event: BlockStored, seed: int | None) -> list[tuple[int, ...]]:
        """Return the keys per hash from the event's token ids, [] without token ids or if their start is unknown."""
        per_hash, rest = divmod(event.block_size, self._block_tokens)
        if per_hash < 1 or rest or len(event.token_ids) != len(event.block_hashes) * event.block_size:
            return []
        before = (seed,) if event.parent_block_hash is None else self._known(event.parent_block_hash)
        parent = before[-1] if before else None
        if parent is None:
            return []
        view, width = memoryview(pack_tokens(event.token_ids)), self._block_tokens * _TOKEN_BYTES
        keys = []
        for start in range(0, len(view), width):
            parent = extend_key(parent, view[start : start + width])
            keys.append(parent)
        return [tuple(keys[start : start + per_hash]) for start in range(0, len(keys), per_hash)]

    def _count(self, tier: str, block_hash: int | bytes, keys: tuple[int, ...]) -> None:
        blocks = self._tiers.setdefault(tier, {})
        before, times = blocks.pop(block_hash, ((), 0))
        if before != keys:
            self._forget(tier, before)
            self._copies.update((tier, key) for key in keys)
            times = 0
        blocks[block_hash] = (keys, times + 1)
        limit = self._memory.max_blocks
        if len(self) > limit:
            for oldest in list(islice(blocks, max(1, limit // _BATCH_SHARE))):
                self._dropped += [(tier, key) for key in self._forget(tier, blocks.pop(oldest)[0])]

    def _forget(self, tier: str, keys: Sequence[int]) -> list[int]:
        gone = []
        for key in keys:
            self._copies[tier, key] -= 1
            if not self._copies[tier, key]:
                del self._copies[tier, key]
                gone.append(key)
        return gone
