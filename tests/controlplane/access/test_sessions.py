"""Sessions are listed until they expire, and can be ended at once by people with the permission."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.utils import timezone

from controlplane.access import sessions
from controlplane.access.models.console_session import ConsoleSession
from controlplane.access.models.role_grant import RoleGrant
from controlplane.access.people import change_person, create_person, set_password
from controlplane.platform.actor import CONSOLE, Actor, person
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.role import Role
from controlplane.platform.roles import NotAllowedError

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def quick_hashes(settings: object) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def boss(db: None) -> Actor:
    user = User.objects.create(username="boss")
    RoleGrant.objects.create(user=user, role=Role.ADMIN)
    return person(user, via=CONSOLE)


def opened(user: User, key: str, **fields: str) -> ConsoleSession:
    """Store a session with its cookie's row and return it."""
    Session.objects.create(session_key=key, session_data="", expire_date=timezone.now() + timedelta(days=1))
    return sessions.begin_session(user, key, address=fields.get("address", "10.0.0.9"), agent=fields.get("agent", "x"))


def test_session_is_listed_until_its_cookie_expires(boss: Actor) -> None:
    opened(boss.user, "a")
    opened(boss.user, "b")
    assert {session.session_key for session in sessions.open_sessions()} == {"a", "b"}
    Session.objects.filter(session_key="a").delete()
    Session.objects.filter(session_key="b").update(expire_date=timezone.now() - timedelta(seconds=1))
    assert not sessions.open_sessions().exists()


def test_user_agent_is_stored_as_one_short_line(boss: Actor) -> None:
    session = opened(boss.user, "a", agent="Evil\r\n{\u2028\x1b[31m" + "x" * 500, address="1" * 200)
    session.refresh_from_db()
    assert len(session.agent) <= 200
    assert session.agent.isprintable()
    assert len(session.address) <= 64


def test_ended_session_is_deleted_with_its_cookie(boss: Actor) -> None:
    user = create_person("op", None, actor=boss)
    session, other = opened(user, "a"), opened(user, "b")
    assert sessions.sign_out(session, actor=boss, why="lost laptop")
    assert not sessions.sign_out(session, actor=boss)
    assert [open_session.session_key for open_session in sessions.open_sessions()] == [other.session_key]
    assert not Session.objects.filter(session_key="a").exists()
    event = AuditEvent.objects.get(verb="person.sign_out")
    assert event.why == "lost laptop"
    assert "'a'" not in str(event.after)


def test_people_end_only_their_own_sessions(boss: Actor) -> None:
    user = create_person("op", None, actor=boss)
    own, foreign = opened(user, "a"), opened(boss.user, "b")
    asker = person(user, via=CONSOLE)
    with pytest.raises(NotAllowedError):
        sessions.sign_out(foreign, actor=asker)
    with pytest.raises(NotAllowedError):
        sessions.sign_out_everywhere(boss.user, actor=asker)
    with pytest.raises(NotAllowedError):
        sessions.sign_out_everybody(actor=asker)
    assert sessions.sign_out(own, actor=asker)


def test_signing_out_everywhere_keeps_only_the_given_session(boss: Actor) -> None:
    user = create_person("op", None, actor=boss)
    for key in "abc":
        opened(user, key)
    opened(boss.user, "d")
    assert sessions.sign_out_everywhere(user, actor=boss, keep_session="a") == 2
    assert sessions.sign_out_everybody(actor=boss, keep_session="d") == 1
    assert [session.session_key for session in sessions.open_sessions()] == ["d"]
    assert sessions.sign_out_everybody(actor=boss, keep_session="d") == 0


def test_new_password_and_deactivation_end_sessions(boss: Actor) -> None:
    user = create_person("op", None, actor=boss)
    for key in "ab":
        opened(user, key)
    set_password(user, "correct-horse-battery", actor=boss, keep_session="a")
    assert [session.session_key for session in sessions.open_sessions()] == ["a"]
    change_person(user, {"is_active": False}, actor=boss)
    assert not Session.objects.filter(session_key="a").exists()


def test_last_request_is_stored_once_a_minute(boss: Actor) -> None:
    session = opened(boss.user, "a")
    start = session.seen_at
    sessions.seen("a", start + timedelta(seconds=5))
    session.refresh_from_db()
    assert session.seen_at == start
    sessions.seen("a", start + timedelta(seconds=90))
    session.refresh_from_db()
    assert session.seen_at == start + timedelta(seconds=90)


def test_old_sessions_are_deleted(boss: Actor) -> None:
    opened(boss.user, "old")
    opened(boss.user, "new")
    ConsoleSession.objects.filter(session_key="old").update(seen_at=timezone.now() - sessions.KEPT - timedelta(hours=1))
    Session.objects.filter(session_key="old").update(expire_date=timezone.now() - timedelta(days=1))
    assert sessions.forget_sessions(timezone.now()) == 1
    assert list(Session.objects.values_list("session_key", flat=True)) == ["new"]
