"""A prefix tree of segments with leaf-LRU eviction: an engine's KV cache, or a balancer's index of it."""

from __future__ import annotations

from collections import OrderedDict

from simulator.regions.prompt import Prompt, PromptSegment


class SegmentCache:
    """Holds segments up to a capacity; those of running requests are locked.

    Mutable state: `tokens` and `locked` (sums), `_locks` (key → users) and `_idle` (key → tokens, least recently used
    first). A use of a segment is followed by uses of the segments before it. In `_idle`, a segment therefore always
    precedes its parent, and the first segment is a leaf.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.tokens = 0
        self.locked = 0
        self._locks: dict[int, int] = {}
        self._idle: OrderedDict[int, int] = OrderedDict()

    def match(self, prompt: Prompt) -> int:
        """Return how many leading tokens of the prompt are cached."""
        return self.deepest(prompt)[1]

    def deepest(self, prompt: Prompt) -> tuple[int, int]:
        """Return the key of the prompt's last cached segment, and the tokens up to its end; (0, 0) if none is
        cached.
        """
        locks, idle = self._locks, self._idle
        for key, end, _ in prompt.deepest_first:
            if key in locks or key in idle:
                return key, end
        return 0, 0

    def to_lock(self, prompt: Prompt) -> int:
        """Return how many tokens of the prompt no running request has locked."""
        for key, end, _ in prompt.deepest_first:
            if key in self._locks:
                return prompt.tokens - end
        return prompt.tokens

    def lock(self, prompt: Prompt) -> None:
        """Lock the whole prompt for a running request; new segments are added."""
        for key, _, tokens in prompt.deepest_first:
            users = self._locks.get(key, 0)
            self._locks[key] = users + 1
            if users:
                continue
            self.locked += tokens
            if self._idle.pop(key, None) is None:
                self.tokens += tokens

    def unlock(self, prompt: Prompt) -> None:
        """Unlock a prompt. Segments without other users become evictable and the most recently used."""
        for key, _, tokens in prompt.deepest_first:
            users = self._locks[key] - 1
            if users:
                self._locks[key] = users
                continue
            del self._locks[key]
            self.locked -= tokens
            self._idle[key] = tokens

    def add(self, prompt: Prompt) -> None:
        """Add a prompt without locking it, within the capacity."""
        for key, _, tokens in prompt.deepest_first:
            if key in self._idle:
                self._idle.move_to_end(key)
            elif key not in self._locks:
                self._idle[key] = tokens
                self.tokens += tokens
        self.shrink(self.capacity)

    def add_leaf(self, segment: PromptSegment) -> None:
        """Add a segment that continues a locked prompt; call this before unlocking the prompt."""
        if segment.key not in self._idle and segment.key not in self._locks:
            self._idle[segment.key] = segment.tokens
            self.tokens += segment.tokens

    def shrink(self, limit: int) -> None:
        """Evict the least recently used leaves until at most `limit` tokens are cached; locked segments stay."""
        while self.tokens > limit and self._idle:
            self.tokens -= self._idle.popitem(last=False)[1]

    def check(self) -> None:
        """Raise AssertionError unless the sums match the segments, and no segment is both locked and idle."""
        if self.tokens - self.locked != sum(self._idle.values()):
            raise AssertionError(f"{self.tokens} tokens, {self.locked} locked, {sum(self._idle.values())} idle")
        if self._locks.keys() & self._idle.keys():
            raise AssertionError("segments are locked and idle at once")
