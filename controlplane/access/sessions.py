"""Lists and ends console sessions."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from controlplane.access.models.console_session import ConsoleSession
from controlplane.platform import audit
from controlplane.platform.actor import Actor
from controlplane.platform.format import one_line
from controlplane.platform.role import Role
from controlplane.platform.roles import require

KIND = "session"
SEEN_EVERY = timedelta(minutes=1)
KEPT = timedelta(days=30)


def begin_session(user: User, session_key: str, *, address: str, agent: str, method: str = "") -> ConsoleSession:
    """Record that the person signed in. A known key continues its session, which now belongs to this person."""
    now = timezone.now()
    session, _ = ConsoleSession.objects.update_or_create(
        session_key=session_key,
        defaults={
            "user": user,
            "started_at": now,
            "seen_at": now,
            "address": address[:64],
            "agent": one_line(agent)[:200],
            "method": method,
            "ended_at": None,
        },
    )
    return session


def seen(session_key: str, now: datetime) -> None:
    """Record a request of the session, at most once a minute."""
    # Each web process counts its own minute; the condition keeps several of them from writing one after the other.
    ConsoleSession.objects.filter(session_key=session_key, ended_at=None, seen_at__lte=now - SEEN_EVERY / 2).update(
        seen_at=now
    )


def open_sessions() -> QuerySet[ConsoleSession]:
    """Return the sessions that have not ended, last seen first."""
    # A cookie that expires ends no ConsoleSession.
    alive = Session.objects.filter(expire_date__gt=timezone.now()).values("session_key")
    return ConsoleSession.objects.filter(ended_at=None, session_key__in=alive).select_related("user")


def sign_out(session: ConsoleSession, *, actor: Actor, why: str = "") -> bool:
    """End one session immediately. Return False if it had already ended. People may end their own sessions, admins any.

    Raises NotAllowedError.
    """
    if actor.user is None or actor.user.pk != session.user_id:
        require(actor, Role.ADMIN)
    with transaction.atomic():
        if not _end(ConsoleSession.objects.filter(pk=session.pk)):
            return False
        after = {"username": session.user.get_username(), "address": session.address, "sessions": 1}
        audit.record(actor, "person.sign_out", KIND, session.session_id, after=after, why=why)
    return True


def sign_out_everywhere(user: User, *, actor: Actor, keep_session: str = "", why: str = "") -> int:
    """End all sessions of a person except the session with the key `keep_session`. Return how many ended.

    People may end their own sessions, admins any. Raises NotAllowedError.
    """
    if actor.user is None or actor.user.pk != user.pk:
        require(actor, Role.ADMIN)
    with transaction.atomic():
        ended = end_sessions_of(user, keep=keep_session)
        if ended:
            after = {"username": user.get_username(), "sessions": ended}
            audit.record(actor, "person.sign_out", "person", user.get_username(), after=after, why=why)
    return ended


def sign_out_everybody(*, actor: Actor, keep_session: str = "", why: str = "") -> int:
    """End all sessions except the one with the key `keep_session`. Return how many ended. Raises NotAllowedError."""
    require(actor, Role.ADMIN)
    with transaction.atomic():
        ended = _end(ConsoleSession.objects.exclude(session_key=keep_session))
        if ended:
            audit.record(actor, "person.sign_out", KIND, "all", after={"sessions": ended}, why=why)
    return ended


def end_sessions_of(user: User, *, keep: str = "") -> int:
    """End the person's sessions without an audit event, and return how many ended. The caller records the change."""
    return _end(ConsoleSession.objects.filter(user=user).exclude(session_key=keep))


def end_session_with(session_key: str) -> None:
    """Record that the person signed out."""
    ConsoleSession.objects.filter(session_key=session_key, ended_at=None).update(ended_at=timezone.now())


def forget_sessions(now: datetime) -> int:
    """Delete expired cookies, and sessions that ended or were last seen longer than KEPT ago. Return how many."""
    Session.objects.filter(expire_date__lt=now).delete()
    deleted, _ = ConsoleSession.objects.filter(seen_at__lt=now - KEPT).delete()
    return deleted


def _end(sessions: QuerySet[ConsoleSession]) -> int:
    keys = list(sessions.filter(ended_at=None).values_list("session_key", flat=True))
    Session.objects.filter(session_key__in=keys).delete()
    return ConsoleSession.objects.filter(session_key__in=keys).update(ended_at=timezone.now())
