"""Notices that a viewer's session ended (signed out, expired, withdrawn, deactivated) or that its roles changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache

from channels.db import database_sync_to_async
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import DatabaseError
from django.utils import timezone

from controlplane.access.models.role_grant import RoleGrant
from web.live.scope import Scope
from web.shell.session_store import held_sessions

LOOK_S = 3.0
"""One look for all viewers of this process; a session that ended is noticed within this time and a query."""

logger = logging.getLogger(__name__)

Seat = tuple[str, int]
"""Session key and user id."""
Look = Callable[[frozenset[Seat]], Awaitable[Mapping[Seat, Scope]]]


@dataclass(eq=False, slots=True)
class WatchedViewer:
    """One viewer's seat. Mutable: the watch sets `changed` once the session ended or its scope is another one."""

    seat: Seat
    scope: Scope
    ended: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class SessionWatch:
    """Asks for all viewers together whether their sessions go on and what they show: three queries per look.

    Belongs to one event loop; the queries run off it. Mutable state: who watches, and the task that looks while
    somebody does.
    """

    def __init__(self, look: Look | None = None, look_s: float = LOOK_S) -> None:
        self._look = look or database_sync_to_async(scopes_of)
        self._look_s = look_s
        self._watched: set[WatchedViewer] = set()
        self._task: asyncio.Task[None] | None = None

    def join(self, session_key: str, user_id: int, scope: Scope = None) -> WatchedViewer:
        """Watch a session that may see `scope`."""
        watched = WatchedViewer((session_key, user_id), scope)
        self._watched.add(watched)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch(), name="session watch")
        return watched

    def leave(self, watched: WatchedViewer) -> None:
        """Stop watching; harmless when it changed before."""
        self._watched.discard(watched)

    async def _watch(self) -> None:
        while self._watched:
            await asyncio.sleep(self._look_s)
            asked = frozenset(watched.seat for watched in self._watched)
            try:
                scopes = await self._look(asked) if asked else {}
            except DatabaseError as error:
                # Who was let in stays while nobody can tell; the next look decides.
                logger.warning("sessions cannot be checked now", extra={"error": type(error).__name__})
                continue
            for watched in [item for item in self._watched if item.seat in asked]:
                watched.ended = watched.seat not in scopes
                if watched.ended or scopes[watched.seat] != watched.scope:
                    watched.changed.set()
                    self.leave(watched)


def scopes_of(seats: Iterable[Seat]) -> dict[Seat, Scope]:
    """Return what each of them may see; left out: whose session is not stored, or whose person is inactive."""
    asked = frozenset(seats)
    keys = Session.objects.filter(session_key__in={key for key, _ in asked}, expire_date__gt=timezone.now())
    users = User.objects.filter(pk__in={user for _, user in asked}, is_active=True)
    held = {key for key, _ in asked if key in held_sessions}
    stored = held | set(keys.values_list("session_key", flat=True))
    may_all = dict(users.values_list("pk", "is_superuser"))
    pools: dict[int, set[str | None]] = {}
    for user, slug in RoleGrant.objects.filter(user__in=may_all).values_list("user", "pool__slug"):
        pools.setdefault(user, set()).add(slug)
    scopes: dict[int, Scope] = {
        user: None if superuser or None in pools.get(user, ()) else frozenset(filter(None, pools.get(user, ())))
        for user, superuser in may_all.items()
    }
    return {(key, user): scopes[user] for key, user in asked if key in stored and user in scopes}


@cache
def session_watch() -> SessionWatch:
    """Return this process's watch."""
    return SessionWatch()
