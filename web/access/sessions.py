"""The Sessions page: who is signed in from which address; sessions can be ended there."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from controlplane.access.models.console_session import ConsoleSession
from controlplane.access.sessions import open_sessions, sign_out, sign_out_everybody
from controlplane.platform.format import count, moment
from controlplane.platform.roles import NotAllowedError
from web.access.page import PAGE_ROWS, access_page, admins_only, rejected
from web.shell.console_request import console_actor, go, listed, why

ADDRESS = "/access/sessions"
_BROWSERS = re.compile(r"(Edg|OPR|Firefox|Chrome|Version)/(\d+)")
_NAMES = {"Edg": "Edge", "OPR": "Opera", "Version": "Safari"}
_SYSTEMS = ("Android", "iPhone", "iPad", "Windows", "Mac OS X", "Linux")


@require_safe
@admins_only
def sessions(request: HttpRequest) -> HttpResponse:
    """List the open sessions, the most recently used first."""
    now = timezone.now()
    page = listed(request, open_sessions(), PAGE_ROWS)
    return access_page(
        request,
        "sessions",
        count(page.paginator.count, "open session"),
        rows=[session_row(session, now, request) for session in page.object_list],
        paging=page,
        ending_all="end" in request.GET,
    )


@require_POST
def end_session(request: HttpRequest, session_id: str) -> HttpResponse:
    """End one session. Admins can end any session, other people only their own."""
    session = get_object_or_404(ConsoleSession.objects.select_related("user"), session_id=session_id)
    back = ADDRESS if request.POST.get("back") != "you" else "/access/you"
    try:
        ended = sign_out(session, actor=console_actor(request))
    except NotAllowedError as error:
        return rejected(request, str(error))
    return go(back, said="signed-out" if ended else "nothing")


@require_POST
@admins_only
def end_all_sessions(request: HttpRequest) -> HttpResponse:
    """End all sessions except the actor's current one."""
    ended = sign_out_everybody(
        actor=console_actor(request),
        keep_session=request.session.session_key or "",
        why=why(request),
    )
    return go(ADDRESS, said="signed-out" if ended else "nothing")


def session_row(session: ConsoleSession, now: datetime, request: HttpRequest) -> dict[str, Any]:
    """Return what the list shows about a session."""
    return {
        "session": session,
        "since": moment(session.started_at, now),
        "seen": moment(session.seen_at, now),
        "agent": browser(session.agent),
        "own": session.session_key == request.session.session_key,
    }


def browser(agent: str) -> str:
    """Return the browser's short name from its user agent, such as "Firefox 140, Linux"."""
    match = _BROWSERS.search(agent)
    system = next((name for name in _SYSTEMS if name in agent), "")
    if match is None:
        return agent.split("/", maxsplit=1)[0][:40] or "unknown"
    name = _NAMES.get(match[1], match[1])
    system = {"Mac OS X": "macOS"}.get(system, system)
    return f"{name} {match[2]}, {system}" if system else f"{name} {match[2]}"
