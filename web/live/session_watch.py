"""Notices that a viewer's session ended: signed out, expired, withdrawn, or its person deactivated."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import cache

from channels.db import database_sync_to_async
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import DatabaseError
from django.utils import timezone

LOOK_S = 3.0
"""One look for all viewers of this process; a session that ended is noticed within this time and a query."""

logger = logging.getLogger(__name__)

Look = Callable[[frozenset[tuple[str, int]]], Awaitable[frozenset[tuple[str, int]]]]


class SessionWatch:
    """Asks for all viewers together whether their sessions go on: two queries per look, off the event loop.

    Belongs to one event loop. Mutable state: who watches, and the task that looks while somebody does.
    """

    def __init__(self, look: Look | None = None, look_s: float = LOOK_S) -> None:
        self._look = look or database_sync_to_async(sessions_alive)
        self._look_s = look_s
        self._watched: dict[asyncio.Event, tuple[str, int]] = {}
        self._task: asyncio.Task[None] | None = None

    def join(self, session_key: str, user_id: int) -> asyncio.Event:
        """Watch a session; the event is set when it has ended."""
        ended = asyncio.Event()
        self._watched[ended] = (session_key, user_id)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch(), name="session watch")
        return ended

    def leave(self, ended: asyncio.Event) -> None:
        """Stop watching; harmless when it ended before."""
        self._watched.pop(ended, None)

    async def _watch(self) -> None:
        while self._watched:
            await asyncio.sleep(self._look_s)
            asked = frozenset(self._watched.values())
            try:
                alive = await self._look(asked) if asked else asked
            except DatabaseError as error:
                # Who was let in stays while nobody can tell; the next look decides.
                logger.warning("sessions cannot be checked now", extra={"error": type(error).__name__})
                continue
            for ended, session in list(self._watched.items()):
                if session in asked and session not in alive:
                    ended.set()
                    self.leave(ended)


def sessions_alive(sessions: Iterable[tuple[str, int]]) -> frozenset[tuple[str, int]]:
    """Return those (session key, user id) pairs whose session is stored and whose person is active."""
    asked = frozenset(sessions)
    keys = Session.objects.filter(session_key__in={key for key, _ in asked}, expire_date__gt=timezone.now())
    users = User.objects.filter(pk__in={user for _, user in asked}, is_active=True)
    stored, active = set(keys.values_list("session_key", flat=True)), set(users.values_list("pk", flat=True))
    return frozenset((key, user) for key, user in asked if key in stored and user in active)


@cache
def session_watch() -> SessionWatch:
    """Return this process's watch."""
    return SessionWatch()
