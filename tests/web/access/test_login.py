"""Login and logout: errors in one line, throttling in seconds, and no redirect to other sites."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from controlplane.access.models.login_allowance import LoginAllowance
from controlplane.access.sessions import begin_session
from tests.page_text import page_text
from web.access import login_throttle
from web.access.login_throttle import (
    MAX_PER_ADDRESS,
    MAX_PER_NAME,
    MAX_PER_NAME_AND_ADDRESS,
    NAME_WINDOW_S,
    WINDOW_S,
    LoginThrottle,
    hashing,
)
from web.live.feed import FleetFeed

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("feed", "operator")]
RIGHT = {"username": "op", "password": "op-password"}
WRONG = {"username": "op", "password": "guess"}


class Clock:
    """A clock set by the test."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    fixed = Clock()
    monkeypatch.setattr("web.access.login.LoginThrottle", lambda: LoginThrottle(fixed))
    return fixed


@pytest.fixture
def operator(settings: object) -> User:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    return User.objects.create_superuser("op", password="op-password")


def test_page_redirects_anonymous_visitors_to_the_login_and_back(client: Client) -> None:
    answer = client.get("/?engine=e-17")
    assert answer.status_code == 302
    assert answer["Location"] == "/login?next=/%3Fengine%3De-17"
    answer = client.post("/login", {**RIGHT, "next": "/?engine=e-17"})
    assert answer["Location"] == "/?engine=e-17"
    assert client.get("/").status_code == 200


@pytest.mark.parametrize(
    "target", ["https://evil.example/", "//evil.example", "javascript:alert(1)", "/\\evil.example", ""]
)
def test_next_parameter_never_leaves_the_site(client: Client, target: str) -> None:
    assert client.post("/login", {**RIGHT, "next": target})["Location"] == "/"


def test_wrong_password_is_reported_in_one_line_and_keeps_the_name(client: Client) -> None:
    page = page_text(client.post("/login", {"username": 'o"p<', "password": "guess"}))
    assert "Name and password do not match." in page
    assert 'value="o&quot;p&lt;"' in page
    assert "guess" not in page


def test_sixth_attempt_is_delayed_and_shows_the_delay(client: Client) -> None:
    for _ in range(MAX_PER_NAME_AND_ADDRESS):
        assert client.post("/login", WRONG).status_code == 200
    answer = client.post("/login", RIGHT)
    assert answer.status_code == 429
    assert 1 <= int(answer["Retry-After"]) <= WINDOW_S
    assert f"Too many attempts. Try again in {answer['Retry-After']} s." in page_text(answer)
    assert "_auth_user_id" not in client.session


def test_name_with_nul_is_an_ordinary_wrong_name(client: Client) -> None:
    assert client.post("/login", {"username": "o\0p", "password": "guess"}).status_code == 200


def test_other_names_are_not_throttled(client: Client) -> None:
    for _ in range(MAX_PER_NAME_AND_ADDRESS):
        client.post("/login", {"username": "someone", "password": "guess"})
    assert client.post("/login", RIGHT).status_code == 302


def test_overlong_password_fails_without_being_hashed(client: Client) -> None:
    assert client.post("/login", {"username": "op", "password": "x" * 100_000}).status_code == 200


def test_sign_out_requires_a_post_and_ends_the_session(client: Client) -> None:
    client.post("/login", RIGHT)
    assert client.get("/logout").status_code == 405
    assert client.post("/logout")["Location"] == "/login"
    assert client.get("/").status_code == 302


def test_the_form_states_where_the_first_password_is_until_a_person_has_signed_in(client: Client) -> None:
    assert "first_run.json" in client.get("/login").content.decode()
    client.post("/login", RIGHT)
    assert "first_run.json" not in Client().get("/login").content.decode()


def test_login_form_requires_a_csrf_token(feed: FleetFeed) -> None:
    assert Client(enforce_csrf_checks=True).post("/login", RIGHT).status_code == 403


def test_signed_in_people_skip_the_form(client: Client) -> None:
    client.post("/login", RIGHT)
    assert client.get("/login")["Location"] == "/"


@pytest.fixture
def throttle(clock: Clock) -> LoginThrottle:
    return LoginThrottle(clock)


def test_attempts_are_restored_one_by_one(clock: Clock, throttle: LoginThrottle) -> None:
    assert [throttle.attempt("op", "10.0.0.1") for _ in range(6)] == [0, 0, 0, 0, 0, 6]
    assert throttle.attempt("OP", "10.0.0.1") == 6
    assert throttle.attempt("op", "10.0.0.2") == 0
    clock.now += 6
    assert [throttle.attempt("op", "10.0.0.1") for _ in range(2)] == [0, 6]


def test_successful_login_restores_the_attempts_of_its_name(throttle: LoginThrottle) -> None:
    for _ in range(5):
        assert throttle.attempt("op", "10.0.0.1") == 0
    throttle.succeeded("op", "10.0.0.1")
    assert throttle.attempt("op", "10.0.0.1") == 0


def test_address_is_throttled_whatever_names_it_tries(client: Client) -> None:
    for number in range(MAX_PER_ADDRESS):
        assert client.post("/login", {"username": f"name{number}", "password": "guess"}).status_code == 200
    answer = client.post("/login", RIGHT)
    assert answer.status_code == 429
    assert 1 <= int(answer["Retry-After"]) <= WINDOW_S
    assert client.post("/login", RIGHT, REMOTE_ADDR="10.0.0.7").status_code == 302


def test_successful_login_does_not_reset_the_address(throttle: LoginThrottle) -> None:
    for number in range(MAX_PER_ADDRESS):
        throttle.attempt(f"name{number}", "10.0.0.1")
    throttle.succeeded("name1", "10.0.0.1")
    assert throttle.attempt("op", "10.0.0.1") == 0
    assert throttle.attempt("op", "10.0.0.1") > 0
    assert throttle.attempt("op", "10.0.0.2") == 0


def test_ipv6_network_counts_as_one_address(throttle: LoginThrottle) -> None:
    waits = [throttle.attempt(f"name{number}", f"2001:db8::{number:x}") for number in range(MAX_PER_ADDRESS + 1)]
    assert waits[-1] > 0
    assert throttle.attempt("name", "2001:db8:0:1::1") == 0


def test_distributed_guesses_throttle_a_name_except_at_its_usual_address(
    operator: User, clock: Clock, throttle: LoginThrottle
) -> None:
    begin_session(operator, "a-session", address="10.9.9.9", agent="")
    waits = [throttle.attempt("op", f"10.0.1.{number}") for number in range(MAX_PER_NAME + 1)]
    assert waits[-2:] == [0, NAME_WINDOW_S / MAX_PER_NAME]
    assert throttle.attempt("op", "10.9.9.9") == 0
    assert throttle.attempt("other", "10.0.2.1") == 0
    clock.now += NAME_WINDOW_S / MAX_PER_NAME
    assert throttle.attempt("op", "10.0.3.1") == 0


def test_clock_set_back_does_not_lock_people_out(clock: Clock, throttle: LoginThrottle) -> None:
    for _ in range(5):
        throttle.attempt("op", "10.0.0.1")
    clock.now -= 3600
    assert throttle.attempt("op", "10.0.0.1") <= WINDOW_S


def test_full_buckets_leave_no_row(clock: Clock, throttle: LoginThrottle) -> None:
    for number in range(40):
        throttle.attempt(f"name{number}", f"10.0.{number}.1")
    clock.now += NAME_WINDOW_S
    throttle.attempt("op", "10.0.0.1")
    assert LoginAllowance.objects.count() == 3


@pytest.mark.django_db(transaction=True)
def test_concurrent_guesses_are_counted_before_they_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[str] = []

    def slow(_request: object, *, username: str, password: str) -> None:
        checked.append(password)
        time.sleep(0.05)

    monkeypatch.setattr("web.access.login.authenticate", slow)

    def guess(number: int) -> int:
        try:
            return Client().post("/login", {"username": "op", "password": str(number)}).status_code
        finally:
            connection.close()

    with ThreadPoolExecutor(12) as pool:
        statuses = sorted(pool.map(guess, range(12)))
    assert statuses == [200] * 5 + [429] * 7
    assert len(checked) == 5


def test_number_of_simultaneous_password_hashes_is_limited(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_throttle, "MAX_HASH_WAIT_S", 0.01)
    monkeypatch.setattr(login_throttle, "_hashing", threading.BoundedSemaphore(1))
    with hashing() as first, hashing() as second:
        assert (first, second) == (True, False)
        assert client.post("/login", RIGHT).status_code == 429
    assert client.post("/login", RIGHT).status_code == 302
