"""A node's DRAM: the sessions' KV caches in it, and which of them are evicted to make room."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable


class HostMemory:
    """KV tokens of sessions in DRAM, the least recently used first.

    A copy in transfer has reserved space, and is available once it has arrived. Mutable state: `_tokens` (session →
    tokens, in the order of eviction), `_coming`, `_pins`, and `used_tokens` (including copies in transfer).
    """

    __slots__ = ("_coming", "_on_evicted", "_pins", "_tokens", "capacity_tokens", "used_tokens")

    def __init__(self, capacity_tokens: float, on_evicted: Callable[[int], None] = lambda _: None) -> None:
        self.capacity_tokens = capacity_tokens
        self.used_tokens = 0
        self._on_evicted = on_evicted
        self._tokens: OrderedDict[int, int] = OrderedDict()
        self._coming: dict[int, int] = {}
        self._pins: Counter[int] = Counter()

    def tokens(self, session_id: int) -> int:
        """Return how many leading tokens of a session are held."""
        return self._tokens.get(session_id, 0)

    def expect(self, session_id: int, tokens: int) -> bool:
        """Reserve space for a copy in transfer, if enough other copies can be evicted."""
        self.forget(session_id)
        more = max(0, tokens - self.tokens(session_id))
        self.pin(session_id)
        fits = self._make_room(more)
        self.pin(session_id, -1)
        if fits:
            self._coming[session_id] = more
            self.used_tokens += more
        return fits

    def arrived(self, session_id: int) -> bool:
        """Store the expected copy; return False if none was expected."""
        more = self._coming.pop(session_id, None)
        if more is None:
            return False
        self._tokens[session_id] = self.tokens(session_id) + more
        self.use(session_id)
        return True

    def forget(self, session_id: int) -> None:
        """Cancel the reserved space of a session's copy."""
        self.used_tokens -= self._coming.pop(session_id, 0)

    def put(self, session_id: int, tokens: int) -> bool:
        """Store this many tokens of a session at once, if enough other copies can be evicted."""
        return self.expect(session_id, tokens) and self.arrived(session_id)

    def use(self, session_id: int) -> None:
        """Record a use of a session, so that its copy is evicted last."""
        if session_id in self._tokens:
            self._tokens.move_to_end(session_id)

    def drop(self, session_id: int) -> None:
        """Drop a session."""
        self.used_tokens -= self._tokens.pop(session_id, 0)

    def pin(self, session_id: int, pins: int = 1) -> None:
        """Protect a copy from eviction; a negative number releases pins."""
        self._pins[session_id] += pins
        if not self._pins[session_id]:
            del self._pins[session_id]

    def pinned(self, session_id: int) -> bool:
        """Return whether a copy is protected from eviction."""
        return self._pins[session_id] > 0

    def check(self) -> None:
        """Raise if the sums are wrong."""
        held = sum(self._tokens.values()) + sum(self._coming.values())
        if self.used_tokens != held or self.used_tokens > self.capacity_tokens:
            raise ValueError(f"host memory holds {self.used_tokens} tokens of {self.capacity_tokens:.0f}")

    def _make_room(self, tokens: int) -> bool:
        missing = self.used_tokens + tokens - self.capacity_tokens
        leaving: list[int] = []
        for session_id, held in self._tokens.items():
            if missing <= 0:
                break
            if not self._pins[session_id]:
                leaving.append(session_id)
                missing -= held
        if missing > 0:
            return False
        for session_id in leaving:
            self.drop(session_id)
            self._on_evicted(session_id)
        return True
