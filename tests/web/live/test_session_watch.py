"""Viewers of ended sessions are disconnected within seconds, with one check for all of them."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from importlib import import_module

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import DatabaseError
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from tests.patience import PATIENCE_S
from tests.web.live.socket_client import SocketClient
from tests.web.role_clients import make_person, make_pool
from web.live import consumers
from web.live.consumers import ROLES_CHANGED, SIGNED_OUT
from web.live.feed import FleetFeed
from web.live.scope import Scope
from web.live.session_watch import CHECK_S, Seat, SessionWatch, scopes_of

FAST_S = 0.01


def test_ended_session_is_detected_within_five_seconds() -> None:
    assert CHECK_S < 5


def new_session(user: User) -> str:
    store = import_module(settings.SESSION_ENGINE).SessionStore()
    store["_auth_user_id"] = str(user.pk)
    store.create()
    return str(store.session_key)


@pytest.mark.django_db
def test_session_is_valid_while_stored_unexpired_and_its_person_active(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    users = [User.objects.create(username=name, is_active=name != "gone") for name in ("a", "b", "c", "gone")]
    sessions = [(new_session(user), user.pk) for user in users]
    Session.objects.filter(session_key=sessions[1][0]).update(expire_date=timezone.now() - timedelta(seconds=1))
    Session.objects.filter(session_key=sessions[2][0]).delete()
    with django_assert_num_queries(3):
        assert scopes_of(sessions) == {sessions[0]: frozenset()}


async def test_one_check_covers_all_viewers() -> None:
    asked: list[frozenset[Seat]] = []

    async def check(sessions: frozenset[Seat]) -> dict[Seat, Scope]:
        asked.append(sessions)
        return {session: None for session in sessions if session[0] != "ended"}

    watch = SessionWatch(check, FAST_S)
    staying, leaving = watch.join("stays", 1), watch.join("ended", 2)
    async with asyncio.timeout(PATIENCE_S):
        await leaving.changed.wait()
    assert asked[0] == {("stays", 1), ("ended", 2)}
    assert not staying.changed.is_set()
    checks = len(asked)
    async with asyncio.timeout(PATIENCE_S):
        while len(asked) == checks:
            await asyncio.sleep(FAST_S)
    assert asked[-1] == {("stays", 1)}
    watch.leave(staying)


async def test_no_check_runs_without_viewers() -> None:
    checks = 0

    async def check(sessions: frozenset[Seat]) -> dict[Seat, Scope]:
        nonlocal checks
        checks += 1
        return dict.fromkeys(sessions)

    watch = SessionWatch(check, FAST_S)
    ended = watch.join("one", 1)
    watch.leave(ended)
    watch.leave(ended)
    await asyncio.sleep(10 * FAST_S)
    assert checks == 0
    assert not ended.changed.is_set()


async def test_unavailable_database_disconnects_no_viewer() -> None:
    answers = iter([DatabaseError("gone"), {}])

    async def check(_: frozenset[Seat]) -> dict[Seat, Scope]:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    watch = SessionWatch(check, FAST_S)
    ended = watch.join("one", 1)
    async with asyncio.timeout(PATIENCE_S):
        await ended.changed.wait()
    assert next(answers, "used up") == "used up"


@pytest.fixture
def ended_session(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(_: frozenset[Seat]) -> dict[Seat, Scope]:
        return {}

    watch = SessionWatch(check, FAST_S)
    monkeypatch.setattr(consumers, "session_watch", lambda: watch)


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("ended_session")
async def test_viewer_of_an_ended_session_is_disconnected_and_removed(feed: FleetFeed) -> None:
    client = SocketClient()
    await client.connect()
    await client.receive()
    assert (await client.receive_output(5))["code"] == SIGNED_OUT
    assert not feed._viewers
    await client.disconnect()


@pytest.mark.django_db(transaction=True)
async def test_viewer_whose_roles_changed_must_reconnect(feed: FleetFeed, monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(seats: frozenset[Seat]) -> dict[Seat, Scope]:
        return {seat: frozenset({"chat"}) for seat in seats}

    watch = SessionWatch(check, FAST_S)
    monkeypatch.setattr(consumers, "session_watch", lambda: watch)
    client = SocketClient()
    await client.connect()
    await client.receive()
    assert (await client.receive_output(5))["code"] == ROLES_CHANGED
    assert not feed._viewers
    await client.disconnect()


@pytest.mark.django_db
def test_visible_pools_of_a_session_follow_the_roles_of_its_person() -> None:
    pool, people = (
        make_pool(),
        {role: make_person(role, make_pool()) for role in ("pool_viewer", "viewer", "superuser")},
    )
    seats = {role: (new_session(user), user.pk) for role, user in people.items()}
    shown = scopes_of(seats.values())
    assert [shown[seats[role]] for role in people] == [frozenset({pool.slug}), None, None]
    people["pool_viewer"].role_grants.all().delete()
    assert scopes_of([seats["pool_viewer"]]) == {seats["pool_viewer"]: frozenset()}


@pytest.mark.django_db(transaction=True)
async def test_viewer_without_a_session_is_rejected(feed: FleetFeed) -> None:
    client = SocketClient(session_key="")
    await client.connect()
    assert (await client.receive_output())["code"] == SIGNED_OUT
    await client.wait()
