"""Console sessions: stored in the database, or in memory if they begin while the database is not writable.

A session in memory exists only in this process, for HELD_S. The next request with a writable database moves it there.
This lets people sign in, read, and revoke keys while a disk is full.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from django.contrib.sessions.backends.base import CreateError, UpdateError
from typing_extensions import override

from controlplane.access.session_store import SessionStore as StoredSession
from controlplane.access.session_store import under_key_in_use
from controlplane.platform.outage.unwritable import CANNOT_WRITE, cause_of, database_writes

HELD_S = 1800.0
MAX_HELD = 1000


class HeldSessions:
    """Encoded sessions by key. Thread-safe. Mutable state: one table; the oldest sessions are dropped first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._held: OrderedDict[str, tuple[float, str]] = OrderedDict()

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.get(key) is not None

    def get(self, key: str) -> str | None:
        """Return a session; None if it is not held or has expired."""
        since_s, data = self._held.get(key, (0.0, None))
        return data if data is not None and self._clock() - since_s < HELD_S else None

    def put(self, key: str, data: str) -> None:
        """Hold a session; its lifetime starts when it is first held."""
        with self._lock:
            since_s, _ = self._held.get(key, (self._clock(), ""))
            self._held[key] = (since_s, data)
            while len(self._held) > MAX_HELD:
                self._held.popitem(last=False)

    def drop(self, key: str) -> None:
        """Drop a session; has no effect if it is not held."""
        with self._lock:
            self._held.pop(key, None)


held_sessions = HeldSessions()


class SessionStore(StoredSession):
    """Sessions in the database. While it is not writable, new sessions are held in memory and changes are lost."""

    @override
    def load(self) -> dict[str, Any]:
        """Return the session's values."""
        data = held_sessions.get(self.session_key or "")
        if data is None:
            return super().load()
        # It is written with the response, once the database is writable.
        self.modified = True
        return under_key_in_use(self.decode(data))

    @override
    def exists(self, session_key: str) -> bool:
        """Return whether a session has this key."""
        return session_key in held_sessions or bool(super().exists(session_key))

    @override
    def save(self, must_create: bool = False) -> None:
        """Store the session, or hold it in memory."""
        held = self.session_key in held_sessions
        try:
            super().save(must_create=must_create or held)
        except CreateError:
            # Another request has moved it to the database.
            if not held:
                raise
        except UpdateError as error:
            # Django raises the same error where the session was ended.
            failure = error.__context__
            if failure is None or cause_of(failure) is None:
                raise
            database_writes().failed(failure)
            return
        except CANNOT_WRITE as error:
            if cause_of(error) is None:
                raise
            database_writes().failed(error)
            held_sessions.put(self._get_or_create_session_key(), self.encode(self._get_session(no_load=must_create)))
            return
        database_writes().succeeded()
        if self.session_key:
            held_sessions.drop(self.session_key)

    @override
    def delete(self, session_key: str | None = None) -> None:
        """End a session."""
        super().delete(session_key)
        held_sessions.drop(session_key or self.session_key or "")
