"""Signing in and out: errors in one line, throttling in seconds, no way off the site."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.core.cache.backends.locmem import LocMemCache
from django.test import Client

from web.live.feed import FleetFeed
from web.login_throttle import MAX_FAILURES, MAX_FAILURES_PER_ADDRESS, WINDOW_S, LoginThrottle

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("feed", "operator")]
RIGHT = {"username": "op", "password": "op-password"}
WRONG = {"username": "op", "password": "guess"}


@pytest.fixture
def operator(settings: object) -> User:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    cache.clear()
    return User.objects.create_user("op", password="op-password")


def test_a_page_sends_strangers_to_the_login_and_back(client: Client) -> None:
    answer = client.get("/?engine=e-17")
    assert answer.status_code == 302
    assert answer["Location"] == "/login?next=/%3Fengine%3De-17"
    answer = client.post("/login", {**RIGHT, "next": "/?engine=e-17"})
    assert answer["Location"] == "/?engine=e-17"
    assert client.get("/").status_code == 200


@pytest.mark.parametrize(
    "target", ["https://evil.example/", "//evil.example", "javascript:alert(1)", "/\\evil.example", ""]
)
def test_next_never_leads_off_the_site(client: Client, target: str) -> None:
    assert client.post("/login", {**RIGHT, "next": target})["Location"] == "/"


def test_a_wrong_password_is_said_in_one_line_and_keeps_the_name(client: Client) -> None:
    page = client.post("/login", {"username": 'o"p<', "password": "guess"}).content.decode()
    assert "Name and password do not match." in page
    assert 'value="o&quot;p&lt;"' in page
    assert "guess" not in page


def test_the_sixth_try_waits_and_says_for_how_long(client: Client) -> None:
    for _ in range(MAX_FAILURES):
        assert client.post("/login", WRONG).status_code == 200
    answer = client.post("/login", RIGHT)
    assert answer.status_code == 429
    assert 1 <= int(answer["Retry-After"]) <= WINDOW_S
    assert f"Too many attempts. Try again in {answer['Retry-After']} s." in answer.content.decode()
    assert "_auth_user_id" not in client.session


def test_another_name_is_not_held_up(client: Client) -> None:
    for _ in range(MAX_FAILURES):
        client.post("/login", {"username": "someone", "password": "guess"})
    assert client.post("/login", RIGHT).status_code == 302


def test_an_overlong_password_fails_without_being_hashed(client: Client) -> None:
    assert client.post("/login", {"username": "op", "password": "x" * 100_000}).status_code == 200


def test_signing_out_needs_a_post_and_ends_the_session(client: Client) -> None:
    client.post("/login", RIGHT)
    assert client.get("/logout").status_code == 405
    assert client.post("/logout")["Location"] == "/login"
    assert client.get("/").status_code == 302


def test_the_login_form_is_guarded_against_forgery(feed: FleetFeed) -> None:
    assert Client(enforce_csrf_checks=True).post("/login", RIGHT).status_code == 403


def test_whoever_is_signed_in_needs_no_form(client: Client) -> None:
    client.post("/login", RIGHT)
    assert client.get("/login")["Location"] == "/"


class Clock:
    """A clock that stands where the test puts it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_the_wait_ends_half_a_minute_after_the_first_counted_failure() -> None:
    clock = Clock()
    throttle = LoginThrottle(LocMemCache("throttle-test", {}), clock)
    for _ in range(MAX_FAILURES):
        throttle.failed("op", "10.0.0.1")
        clock.now += 2
    assert throttle.wait_s("OP", "10.0.0.1") == WINDOW_S - 2 * MAX_FAILURES
    assert throttle.wait_s("op", "10.0.0.2") == 0
    clock.now = 1000 + WINDOW_S
    assert throttle.wait_s("op", "10.0.0.1") == 0


def test_success_forgets_the_failures() -> None:
    throttle = LoginThrottle(LocMemCache("throttle-test-2", {}), Clock())
    for _ in range(MAX_FAILURES):
        throttle.failed("op", "10.0.0.1")
    throttle.succeeded("op", "10.0.0.1")
    assert throttle.wait_s("op", "10.0.0.1") == 0


def test_one_address_is_held_up_whatever_names_it_tries(client: Client) -> None:
    for number in range(MAX_FAILURES_PER_ADDRESS):
        assert client.post("/login", {"username": f"name{number}", "password": "guess"}).status_code == 200
    answer = client.post("/login", RIGHT)
    assert answer.status_code == 429
    assert 1 <= int(answer["Retry-After"]) <= WINDOW_S
    assert client.post("/login", RIGHT, REMOTE_ADDR="10.0.0.7").status_code == 302


def test_a_success_does_not_clear_the_address(client: Client) -> None:
    throttle = LoginThrottle(LocMemCache("throttle-test-3", {}), Clock())
    for number in range(MAX_FAILURES_PER_ADDRESS):
        throttle.failed(f"name{number}", "10.0.0.1")
    throttle.succeeded("op", "10.0.0.1")
    assert throttle.wait_s("op", "10.0.0.1") == WINDOW_S
    assert throttle.wait_s("", "10.0.0.1") == WINDOW_S
    assert throttle.wait_s("op", "10.0.0.2") == 0
