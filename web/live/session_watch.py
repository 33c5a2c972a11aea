"""Detects that a viewer's session has ended (signed out, expired, withdrawn, deactivated) or its roles changed."""

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

CHECK_S = 3.0
"""Interval of the checks, each of which covers all viewers of this process; changes are detected within it."""

logger = logging.getLogger(__name__)

Seat = tuple[str, int]
"""Session key and user id."""
Check = Callable[[frozenset[Seat]], Awaitable[Mapping[Seat, Scope]]]


@dataclass(eq=False, slots=True)
class WatchedViewer:
    """One viewer's session. Mutable: the watch sets `changed` once the session has ended or its scope has changed."""

    seat: Seat
    scope: Scope
    ended: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class SessionWatch:
    """Checks for all viewers together whether their sessions are still valid and which pools they show.

    A check takes three queries. Belongs to one event loop; the queries run outside it. Mutable state: the viewers, and
    the checking task, which exists while there are viewers.
    """

    def __init__(self, check: Check | None = None, check_s: float = CHECK_S) -> None:
        self._check = check or database_sync_to_async(scopes_of)
        self._check_s = check_s
        self._watched: set[WatchedViewer] = set()
        self._task: asyncio.Task[None] | None = None

    def join(self, session_key: str, user_id: int, scope: Scope = None) -> WatchedViewer:
        """Start watching a session; `scope` is its current scope."""
        watched = WatchedViewer((session_key, user_id), scope)
        self._watched.add(watched)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch(), name="session watch")
        return watched

    def leave(self, watched: WatchedViewer) -> None:
        """Stop watching; allowed after a change as well."""
        self._watched.discard(watched)

    async def _watch(self) -> None:
        while self._watched:
            await asyncio.sleep(self._check_s)
            asked = frozenset(watched.seat for watched in self._watched)
            try:
                scopes = await self._check(asked) if asked else {}
            except DatabaseError as error:
                # Admitted viewers stay while nothing can be checked; the next check decides.
                logger.warning("sessions cannot be checked now", extra={"error": type(error).__name__})
                continue
            # Those that joined during the query are judged by the next one. A list: `leave` changes the set.
            for watched in [item for item in self._watched if item.seat in asked]:
                watched.ended = watched.seat not in scopes
                if watched.ended or scopes[watched.seat] != watched.scope:
                    watched.changed.set()
                    self.leave(watched)


def scopes_of(seats: Iterable[Seat]) -> dict[Seat, Scope]:
    """Return the scope of each seat. Seats without a stored session or an active user are omitted."""
    asked = frozenset(seats)
    keys = Session.objects.filter(session_key__in={key for key, _ in asked}, expire_date__gt=timezone.now())
    users = User.objects.filter(pk__in={user for _, user in asked}, is_active=True)
    # They began while the database was not writable, and are in no table.
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
