"""Sessions are recorded once a minute, in a table of limited size, with the real client address."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client, RequestFactory
from pytest_django import DjangoAssertNumQueries

from controlplane.access.models.console_session import ConsoleSession
from web.access.session_record import MAX_KNOWN, SeenSessions
from web.shell.client_address import client_address


class Clock:
    """A clock set by the test."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_session_is_due_once_a_minute() -> None:
    clock = Clock()
    seen = SeenSessions(clock)
    assert seen.is_due("a")
    assert not seen.is_due("a")
    clock.now += 60
    assert seen.is_due("a")
    seen.wrote("b")
    assert not seen.is_due("b")


def test_table_size_is_limited() -> None:
    seen = SeenSessions(Clock())
    for number in range(MAX_KNOWN + 10):
        seen.is_due(str(number))
    assert len(seen._written_s) == MAX_KNOWN
    assert seen.is_due("0")


@pytest.mark.django_db
def test_session_without_a_record_is_recorded_with_its_next_request(client: Client) -> None:
    client.force_login(User.objects.create(username="op", is_superuser=True))
    ConsoleSession.objects.all().delete()
    from web.access import session_record

    session_record._seen = SeenSessions()
    client.get("/access/you", headers={"user-agent": "Firefox/140.0"})
    assert ConsoleSession.objects.get().agent == "Firefox/140.0"


@pytest.mark.django_db
def test_later_requests_write_nothing(client: Client, django_assert_num_queries: DjangoAssertNumQueries) -> None:
    client.force_login(User.objects.create(username="op", is_superuser=True))
    client.get("/policies")
    before = ConsoleSession.objects.get().seen_at
    with django_assert_num_queries(3):
        client.post("/access")
    assert ConsoleSession.objects.get().seen_at == before


@pytest.mark.parametrize(
    ("behind", "headers", "address"),
    [
        (False, {"REMOTE_ADDR": "10.0.0.9", "HTTP_X_FORWARDED_FOR": "1.2.3.4"}, "10.0.0.9"),
        (True, {"REMOTE_ADDR": "10.0.0.9", "HTTP_X_FORWARDED_FOR": "6.6.6.6, 1.2.3.4"}, "1.2.3.4"),
        (True, {"REMOTE_ADDR": "10.0.0.9", "HTTP_X_FORWARDED_FOR": "evil\r\n"}, "10.0.0.9"),
        (True, {"REMOTE_ADDR": "10.0.0.9"}, "10.0.0.9"),
        (False, {"REMOTE_ADDR": "not an address"}, ""),
        (False, {"REMOTE_ADDR": "::1"}, "::1"),
    ],
)
def test_recorded_address_cannot_be_forged(
    settings: object, behind: bool, headers: dict[str, str], address: str
) -> None:
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if behind else None
    assert client_address(RequestFactory().get("/", **headers)) == address
