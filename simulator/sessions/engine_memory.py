"""An engine's memory: active requests first, and prefetched caches while there is space.

Prefetched caches are purged without I/O, because lower tiers have copies (SYMPHONY §3.4, cooperative memory).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from simulator.link import Transfer

_FIRST_LAYERS = 0.5
"""Share of a prefetched cache, its first layers, that is purged only after the later layers of all others."""


@dataclass(slots=True, eq=False)
class Prefetched:
    """One session's cache, prefetched before its request. Mutable: `held`, `transfer`."""

    session_id: int
    tokens: int
    advised_s: float
    priority: bool = False
    transfer: Transfer | None = None
    held: int = field(init=False)

    def __post_init__(self) -> None:
        self.held = self.tokens

    @property
    def landed_tokens(self) -> int:
        """Number of tokens that correspond to the layers that have arrived."""
        if self.transfer is None:
            return 0
        return min(self.held, self.tokens * self.transfer.landed // self.transfer.chunks)


class EngineMemory:
    """KV tokens of active requests and of prefetches.

    Mutable state: `active_tokens`, `prefetched`, `prefetched_tokens`, `purged_tokens`.
    """

    __slots__ = (
        "_order", "_pinned", "active_tokens", "capacity", "prefetched", "prefetched_tokens", "purged_tokens",
    )  # fmt: skip

    def __init__(self, capacity: int, order: str = "layers", *, pinned: bool = False) -> None:
        self.capacity = capacity
        self.active_tokens = 0
        self.prefetched: dict[int, Prefetched] = {}
        self.prefetched_tokens = 0
        self.purged_tokens = 0
        self._order = order
        self._pinned = pinned

    @property
    def free_tokens(self) -> int:
        """Number of free tokens."""
        return self.capacity - self.active_tokens - self.prefetched_tokens

    def missing_tokens(self, tokens: int) -> int:
        """Return how many tokens a request of this size would lack even if every prefetch were purged."""
        return max(0, self.active_tokens + tokens - self.capacity)

    def reserve(self, tokens: int, session_id: int = -1) -> bool:
        """Reserve tokens for an active request, in place of its prefetch and of others; return False if space is
        insufficient.
        """
        own = self.prefetched.get(session_id)
        missing = tokens - self.free_tokens - (own.held if own is not None else 0)
        if missing > 0:
            if (self._pinned and self.active_tokens) or self.missing_tokens(tokens):
                return False
            self._purge(missing, session_id)
        self.forget(session_id)
        self.active_tokens += tokens
        return True

    def release(self, tokens: int) -> None:
        """Release an active request's tokens."""
        self.active_tokens -= tokens

    def prefetch(self, prefetched: Prefetched) -> bool:
        """Hold a prefetch in free memory; one with priority can also replace others. Return False if space is
        insufficient.
        """
        if prefetched.session_id in self.prefetched:
            return False
        missing = prefetched.tokens - self.free_tokens
        if missing > 0:
            if not prefetched.priority or missing > sum(
                item.held for item in self.prefetched.values() if not item.priority
            ):
                return False
            self._purge(missing, prefetched.session_id)
        self.prefetched[prefetched.session_id] = prefetched
        self.prefetched_tokens += prefetched.held
        return True

    def forget(self, session_id: int) -> Prefetched | None:
        """Remove a prefetch and return it; None if there is none."""
        prefetched = self.prefetched.pop(session_id, None)
        if prefetched is not None:
            self.prefetched_tokens -= prefetched.held
        return prefetched

    def check(self) -> None:
        """Raise if the sums are wrong."""
        if self.prefetched_tokens != sum(item.held for item in self.prefetched.values()) or self.free_tokens < 0:
            raise ValueError(f"engine memory: {self.active_tokens} + {self.prefetched_tokens} of {self.capacity}")

    def _purge(self, missing: int, keep: int) -> None:
        for prefetched, floor in self._leaving():
            if missing <= 0:
                return
            if prefetched.session_id == keep:
                continue
            gone = min(missing, prefetched.held - floor)
            if gone > 0:
                missing -= gone
                self._shrink(prefetched, gone)

    def _shrink(self, prefetched: Prefetched, tokens: int) -> None:
        if prefetched.transfer is not None:
            prefetched.transfer.cancel()
        prefetched.held -= tokens
        self.prefetched_tokens -= tokens
        self.purged_tokens += tokens
        if not prefetched.held:
            del self.prefetched[prefetched.session_id]

    def _leaving(self) -> Iterable[tuple[Prefetched, int]]:
        """Yield the prefetches to purge in order, each with the number of tokens to keep."""
        oldest = sorted(self.prefetched.values(), key=lambda item: (item.advised_s, item.session_id))
        for priority in (False, True):
            leaving = [item for item in oldest if item.priority == priority]
            if self._order == "layers":
                yield from [(item, int(item.tokens * _FIRST_LAYERS)) for item in leaving]
            yield from [(item, 0) for item in leaving]
