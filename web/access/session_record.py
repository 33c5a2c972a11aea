"""Record sign-ins, sign-outs, and when each session was last used. Writes a session at most once a minute."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.models import User, update_last_login
from django.contrib.auth.signals import user_logged_in, user_logged_out
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from controlplane.access.models.console_session import ConsoleSession
from controlplane.access.sessions import SEEN_EVERY, begin_session, end_session_with, seen
from controlplane.platform.outage.unwritable import database_writes
from web.shell.client_address import client_address

MAX_KNOWN = 10_000
METHOD = "sign_in_method"
"""Name in the session of how the person signed in."""
_LAST_LOGIN = "update_last_login"


class SeenSessions:
    """Remembers when this process last wrote each session, so that most requests write nothing.

    Mutable state: a table by session key; the oldest entries are dropped first.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._written_s: OrderedDict[str, float] = OrderedDict()

    def is_due(self, session_key: str) -> bool:
        """Return True, and record a write, if the session was last written over a minute ago."""
        last_s = self._written_s.get(session_key)
        if last_s is not None and self._clock() - last_s < SEEN_EVERY.total_seconds():
            return False
        self.wrote(session_key)
        return True

    def wrote(self, session_key: str) -> None:
        """Record that the session was just written."""
        self._written_s[session_key] = self._clock()
        self._written_s.move_to_end(session_key)
        if len(self._written_s) > MAX_KNOWN:
            self._written_s.popitem(last=False)


_seen = SeenSessions()


def note_sessions(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Return the middleware, which must follow the session and authentication middleware."""

    def respond(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        session_key = request.session.session_key
        if session_key and request.session.accessed and request.user.is_authenticated and _seen.is_due(session_key):
            with database_writes().attempted():
                seen(session_key, timezone.now())
                # A session that began while the database was not writable has no row yet.
                if not ConsoleSession.objects.filter(session_key=session_key).exists():
                    _begin(request, request.user)
        return response

    return respond


def listen() -> None:
    """Subscribe to sign-ins and sign-outs; called once when the app is ready."""
    # Replaces Django's own receiver, whichever came first: that one blocks sign-ins while the database is full.
    user_logged_in.disconnect(dispatch_uid=_LAST_LOGIN)
    user_logged_in.connect(_signed_in, dispatch_uid=_LAST_LOGIN)
    user_logged_out.connect(_signed_out, dispatch_uid="web.access.session_record")


def keep_signed_in(request: HttpRequest, user: User) -> None:
    """Keep people signed in when they change their own password; their cookie gets a new secret."""
    before = request.session.session_key
    update_session_auth_hash(request, user)
    after = request.session.session_key
    if before and after:
        ConsoleSession.objects.filter(session_key=before).update(session_key=after)


def _signed_in(request: HttpRequest, user: User, **_: Any) -> None:
    if request.session.session_key is None:
        request.session.save()
    with database_writes().attempted():
        update_last_login(User, user)
        _begin(request, user)


def _signed_out(request: HttpRequest, **_: Any) -> None:
    if request.session.session_key:
        end_session_with(request.session.session_key)


def _begin(request: HttpRequest, user: Any) -> None:
    key = request.session.session_key
    if key:
        agent, method = request.headers.get("User-Agent", ""), request.session.get(METHOD, "")
        begin_session(user, key, address=client_address(request), agent=agent, method=method)
        _seen.wrote(key)
