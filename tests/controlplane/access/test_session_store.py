"""Console sessions survive a rotation of their signing key, in every web process."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import sync_to_async
from channels.auth import get_user
from django.conf import settings as django_settings
from django.contrib.auth import HASH_SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import Client
from pytest_django import Settings

from controlplane.access.models.console_session import ConsoleSession
from controlplane.access.session_store import SessionStore, sign_all_again

pytestmark = pytest.mark.django_db
OLD, NEW = "the key before the rotation of these tests", "the key after the rotation of these tests"
STEPS = (OLD, ""), (OLD, NEW), (NEW, OLD), (NEW, "")
PAGE = "/access/you"


@pytest.fixture(autouse=True)
def at_start(settings: Settings) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    at(settings, 0)


def at(settings: Settings, step: int) -> None:
    """Apply the settings of a web process at this step of a rotation."""
    used, also = STEPS[step]
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = used, [also] if also else []


@pytest.fixture
def signed_in() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("admin", password="of no use"))
    assert client.get(PAGE).status_code == 200
    return client


def cookie(client: Client) -> str:
    return client.cookies[django_settings.SESSION_COOKIE_NAME].value


@pytest.mark.parametrize("signed_at", range(3))
def test_session_works_before_and_after_each_rotation_step_with_one_cookie(settings: Settings, signed_at: int) -> None:
    at(settings, signed_at)
    client = Client()
    client.force_login(User.objects.create_superuser("admin", password="of no use"))
    before = cookie(client)
    for step in (signed_at + 1, signed_at, signed_at + 1):
        if step == 3:
            sign_all_again()
        at(settings, step)
        assert client.get(PAGE).status_code == 200
        assert cookie(client) == before
    assert ConsoleSession.objects.filter(ended_at=None).count() == 1


@pytest.mark.django_db(transaction=True)
async def test_websocket_does_not_end_a_session_signed_by_the_other_key(settings: Settings, signed_in: Client) -> None:
    at(settings, 1)
    at(settings, 2)
    session = SessionStore(cookie(signed_in))
    user = await get_user({"session": session})
    assert user.is_authenticated
    assert await sync_to_async(Session.objects.filter(session_key=cookie(signed_in)).exists)()


def test_idle_sessions_are_signed_again_at_the_end_of_a_rotation(settings: Settings, signed_in: Client) -> None:
    before = Session.objects.get()
    at(settings, 2)
    assert sign_all_again() == 1
    after = Session.objects.get()
    assert (after.session_key, after.expire_date) == (before.session_key, before.expire_date)
    at(settings, 3)
    assert signed_in.get(PAGE).status_code == 200


def test_sessions_not_signed_again_end_with_the_old_key(settings: Settings, signed_in: Client) -> None:
    at(settings, 3)
    assert signed_in.get(PAGE).status_code == 302


def test_changed_password_ends_sessions_under_either_key(settings: Settings, signed_in: Client) -> None:
    at(settings, 2)
    user = User.objects.get()
    user.set_password("another")
    user.save()
    assert signed_in.get(PAGE).status_code == 302
    sign_all_again()
    assert signed_in.get(PAGE).status_code == 302


def test_reading_a_session_writes_nothing(settings: Settings, signed_in: Client) -> None:
    at(settings, 2)
    before = Session.objects.get().session_data
    shown: dict[str, Any] = SessionStore(cookie(signed_in)).load()
    assert shown[HASH_SESSION_KEY] == User.objects.get().get_session_auth_hash()
    assert signed_in.get(PAGE).status_code == 200
    assert Session.objects.get().session_data == before
