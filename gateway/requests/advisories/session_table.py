"""The last request of each session, per tenant: its block keys and engine, never its text.

Engines' events name the blocks that an answer fills, each with the block before it. They extend the keys of the session
whose prompt ends there.
"""

from __future__ import annotations

from array import array
from collections import Counter, OrderedDict
from collections.abc import Sequence

import msgspec

MAX_SESSIONS = 100_000
MAX_PER_TENANT = 25_000
MAX_KEYS = 8 << 20
"""Limit of block keys of all sessions: 64 MiB."""
MAX_KEYS_PER_TENANT = MAX_KEYS // 4


class KnownSession(msgspec.Struct):
    """The last request of one session. Mutable: its answer adds to `tokens`."""

    pool_id: str
    engine_id: str
    keys: array[int]
    """Block keys of the prompt, and of the answer as far as its engine has reported them."""
    tokens: int
    """Tokens of prompt and answer."""
    at_s: float
    """Monotonic seconds."""
    spurious: int = 0
    """Consecutive advisories that no request followed."""


class SessionTable:
    """The last request of each session.

    Mutable: `_tenants` (tenant → session → its last request, oldest first), `_keys` (tenant → number of keys), and
    `_ends` (last key → number of sessions), and `_tails` (last key → the only session that has ended there).
    """

    def __init__(
        self,
        max_sessions: int = MAX_SESSIONS,
        max_per_tenant: int = MAX_PER_TENANT,
        max_keys: int = MAX_KEYS,
        max_keys_per_tenant: int = MAX_KEYS_PER_TENANT,
    ) -> None:
        self._max_sessions, self._max_per_tenant = max_sessions, max_per_tenant
        self._max_keys, self._max_keys_per_tenant = max_keys, max_keys_per_tenant
        self._tenants: dict[str, OrderedDict[str, KnownSession]] = {}
        self._keys: dict[str, int] = {}
        self._ends: Counter[int] = Counter()
        self._tails: dict[int, tuple[str, str]] = {}
        self._sessions = self._all_keys = 0

    def __len__(self) -> int:
        return self._sessions

    def get(self, tenant_id: str, session_id: str) -> KnownSession | None:
        """Return the last request of a tenant's session."""
        sessions = self._tenants.get(tenant_id)
        return sessions.get(session_id) if sessions is not None else None

    def note(
        self,
        tenant_id: str,
        session_id: str,
        pool_id: str,
        engine_id: str,
        keys: Sequence[int],
        tokens: int,
        now: float,
    ) -> None:
        """Store a session's request. Over a limit, drop the oldest session of this tenant or of the largest tenant."""
        self.forget(tenant_id, session_id)
        sessions = self._tenants.setdefault(tenant_id, OrderedDict())
        # Packed, a key takes 8 bytes; in a tuple of ints it takes 40.
        sessions[session_id] = KnownSession(pool_id, engine_id, array("Q", keys), tokens, now)
        self._keys[tenant_id] = self._keys.get(tenant_id, 0) + len(keys)
        self._sessions += 1
        self._all_keys += len(keys)
        self._end_at(tenant_id, session_id, keys)
        self._limit(tenant_id)

    def continued(self, parent: int, keys: Sequence[int]) -> None:
        """Add the blocks that an engine has stored after the block `parent` to the session that ends there."""
        name = self._tails.get(parent)
        known = self.get(*name) if name is not None else None
        if name is None or known is None:
            return
        self._leave(parent)
        known.keys.extend(keys)
        self._keys[name[0]] += len(keys)
        self._all_keys += len(keys)
        self._end_at(*name, known.keys)
        self._limit(name[0])

    def _end_at(self, tenant_id: str, session_id: str, keys: Sequence[int]) -> None:
        if not keys:
            return
        self._ends[keys[-1]] += 1
        if self._ends[keys[-1]] == 1:
            self._tails[keys[-1]] = tenant_id, session_id
        else:
            # An event does not state whose block it is.
            self._tails.pop(keys[-1], None)

    def _leave(self, tail: int) -> None:
        self._ends[tail] -= 1
        if not self._ends[tail]:
            del self._ends[tail]
            self._tails.pop(tail, None)

    def _limit(self, tenant_id: str) -> None:
        """Drop sessions over a limit, the oldest first."""
        sessions = self._tenants[tenant_id]
        while tenant_id in self._tenants and (
            len(sessions) > self._max_per_tenant or self._keys[tenant_id] > self._max_keys_per_tenant
        ):
            self.forget(tenant_id, next(iter(sessions)))
        # The largest tenant pays, so that one tenant's flood of sessions leaves those of others.
        while self._sessions > self._max_sessions:
            self._forget_oldest_of(max(self._tenants, key=lambda tenant: len(self._tenants[tenant])))
        while self._all_keys > self._max_keys:
            self._forget_oldest_of(max(self._keys, key=self._keys.__getitem__))

    def forget(self, tenant_id: str, session_id: str) -> None:
        """Delete a session; an unknown session changes nothing."""
        sessions = self._tenants.get(tenant_id)
        known = sessions.pop(session_id, None) if sessions is not None else None
        if known is None:
            return
        self._sessions -= 1
        self._all_keys -= len(known.keys)
        if known.keys:
            self._leave(known.keys[-1])
        self._keys[tenant_id] -= len(known.keys)
        if not sessions:
            del self._tenants[tenant_id], self._keys[tenant_id]

    def check(self) -> None:
        """Raise AssertionError unless counts and limits hold."""
        counted = {
            tenant: sum(len(session.keys) for session in sessions.values())
            for tenant, sessions in self._tenants.items()
        }
        if counted != self._keys or self._all_keys != sum(counted.values()) or not all(self._tenants.values()):
            raise AssertionError("keys are miscounted")
        held = [session for sessions in self._tenants.values() for session in sessions.values() if session.keys]
        if self._ends != Counter(session.keys[-1] for session in held):
            raise AssertionError("last keys are miscounted")
        for tail, name in self._tails.items():
            known = self.get(*name)
            if self._ends[tail] != 1 or known is None or known.keys[-1] != tail:
                raise AssertionError("a last key belongs to another session")
        if self._sessions != sum(map(len, self._tenants.values())):
            raise AssertionError("sessions are miscounted")
        if self._sessions > self._max_sessions or self._all_keys > self._max_keys:
            raise AssertionError("the table is over its limits")
        if any(len(item) > self._max_per_tenant for item in self._tenants.values()):
            raise AssertionError("a tenant has more sessions than the limit")

    def _forget_oldest_of(self, tenant_id: str) -> None:
        self.forget(tenant_id, next(iter(self._tenants[tenant_id])))
