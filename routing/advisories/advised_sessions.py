"""Soft reservations made by advisories: a session's expected engine, its expiry, and its number of tokens.

A reservation is a hint. No result depends on it: it can be lost, repeated, late, or wrong. A session's newest advisory
replaces the earlier one. An arrival or an invalidation ends the reservation at once; otherwise it expires.
"""

from __future__ import annotations

from collections import defaultdict
from heapq import heapify, heappop, heappush

import msgspec

LIFETIME_S = 60.0
"""How long a reservation lasts without its request."""
EXPECTED_SHARE = 0.3
"""Weight of an expected session relative to an active one: requests last about a third of an advisory's lead time."""


class AdvisedSession(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One session's reservation."""

    session_id: int
    engine_id: int
    tokens: int
    expected_s: float
    expires_s: float
    announced: bool = True
    """Whether its request was announced. Otherwise the session keeps its engine without counting as load there."""


class StoredAdvisory(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An advisory's effect on one request. Times in seconds."""

    lead_s: float
    """Seconds from the advisory to the request."""
    engine_id: str
    """The engine that was reserved."""
    outcome: str
    """useful, late or overruled."""
    expected_s: float | None = None
    """The announced lead in seconds."""
    held_by: str = ""
    """Name of the node that held the session's KV; empty if nothing had to move."""
    moved_to: str = ""
    """Name of the reserved engine's node."""
    moved_blocks: int = 0
    moved_bytes: int = 0
    move_s: float = 0.0
    engine_blocks: int = 0
    """Blocks prefetched into the engine's own memory."""


class AdvisedSessions:
    """All soft reservations of a pool, at most `limit`.

    Mutable state: `_by_session`, `_tokens`, `_sessions`, and `_ends`, a heap of expiries that can hold outdated ones.
    """

    def __init__(self, limit: int = 100_000) -> None:
        self._limit = limit
        self._by_session: dict[int, AdvisedSession] = {}
        self._tokens: defaultdict[int, int] = defaultdict(int)
        self._sessions: defaultdict[int, int] = defaultdict(int)
        self._ends: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._by_session)

    def reserve(self, advised: AdvisedSession) -> None:
        """Add a reservation, replacing the session's earlier one. At the limit, drop the oldest one."""
        self.release(advised.session_id)
        if len(self._by_session) >= self._limit:
            self.release(next(iter(self._by_session)))
        self._by_session[advised.session_id] = advised
        self._tokens[advised.engine_id] += advised.tokens
        self._sessions[advised.engine_id] += advised.announced
        heappush(self._ends, (advised.expires_s, advised.session_id))
        # A bound on outdated ones.
        if len(self._ends) > 2 * len(self._by_session) + 1:
            self._ends = [(item.expires_s, item.session_id) for item in self._by_session.values()]
            heapify(self._ends)

    def release(self, session_id: int) -> AdvisedSession | None:
        """End a session's reservation and return it, or None if it has none."""
        advised = self._by_session.pop(session_id, None)
        if advised is not None:
            self._tokens[advised.engine_id] -= advised.tokens
            self._sessions[advised.engine_id] -= advised.announced
        return advised

    def expire(self, now: float) -> list[AdvisedSession]:
        """End expired reservations and return them."""
        over = []
        while self._ends and self._ends[0][0] <= now:
            advised = self._by_session.get(heappop(self._ends)[1])
            if advised is not None and advised.expires_s <= now:
                self.release(advised.session_id)
                over.append(advised)
        return over

    def forget_engine(self, engine_id: int) -> None:
        """End the reservations of a removed engine."""
        for advised in [item for item in self._by_session.values() if item.engine_id == engine_id]:
            self.release(advised.session_id)

    def tokens_at(self, engine_id: int) -> int:
        """Return the KV tokens expected at an engine."""
        return self._tokens[engine_id]

    def sessions_at(self, engine_id: int) -> int:
        """Return how many announced sessions are expected at an engine."""
        return self._sessions[engine_id]

    def check(self) -> None:
        """Recompute the sums, and raise AssertionError if one is wrong."""
        tokens: defaultdict[int, int] = defaultdict(int)
        sessions: defaultdict[int, int] = defaultdict(int)
        for advised in self._by_session.values():
            tokens[advised.engine_id] += advised.tokens
            sessions[advised.engine_id] += advised.announced
        if len(self._by_session) > self._limit or any(
            self._tokens[token] != tokens[token] or self._sessions[token] != sessions[token]
            for token in {*self._tokens, *self._sessions}
        ):
            raise AssertionError("the sums of advised sessions are wrong")
