"""With a read-only database, people sign in, read, and revoke keys; the console recovers once it is writable."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import InternalError
from django.test import Client

from controlplane.access.models.console_session import ConsoleSession
from controlplane.access.stored_revocations import store_waiting
from controlplane.platform.bus import get_bus
from controlplane.platform.models.tenant import Tenant
from controlplane.platform.outage.bus_revocations import bus_revocations
from controlplane.platform.outage.unwritable import REMEMBERED_S, Cause, DatabaseWrites
from kvstore.node.disk_space import DiskSpace
from tests.controlplane.kv_nodes.node_words import reported
from tests.controlplane.platform.outage.unwritable_database import FULL, unwritable
from tests.page_text import page_text
from tests.web.access.access_world import fresh, new_key, tenant
from tests.web.role_clients import client_of, make_person, make_pool
from web.access import login_throttle
from web.access.login_throttle import MAX_PER_ADDRESS, MAX_PER_NAME_AND_ADDRESS, CountedHere, LoginThrottle
from web.fleet import installation_problems
from web.live.session_watch import scopes_of
from web.shell import session_store
from web.shell.session_store import HELD_S, MAX_HELD, HeldSessions, SessionStore

__all__ = ["fresh", "tenant"]

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("fresh", "feed")]
RIGHT = {"username": "admin", "password": "correct-horse-battery"}
GIB = 1 << 30


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def person(monkeypatch: pytest.MonkeyPatch) -> Iterator[User]:
    """Return an admin, and clear the memory of this process."""
    monkeypatch.setattr(session_store, "held_sessions", held := HeldSessions())
    monkeypatch.setattr("web.live.session_watch.held_sessions", held)
    monkeypatch.setattr(login_throttle, "_counted_here", CountedHere())
    user = make_person("admin")
    user.set_password(RIGHT["password"])
    user.save()
    return user


@pytest.mark.parametrize(
    ("error", "message"),
    [(None, FULL), (InternalError, "cannot execute INSERT in a read-only transaction")],
)
def test_people_sign_in_and_read_and_their_session_is_stored_later(
    person: User, error: type[Exception] | None, message: str
) -> None:
    client = Client()
    with unwritable(message, *([error] if error else [])):
        assert client.post("/login", RIGHT)["Location"] == "/"
        for page in ("/", "/access/keys", "/policies"):
            assert client.get(page).status_code == 200, page
        key = client.cookies["sessionid"].value
        assert not Session.objects.exists()
        assert scopes_of([(key, person.pk)]) == {(key, person.pk): None}, "its live view stays, too"
    assert client.get("/").status_code == 200
    assert Session.objects.filter(session_key=key).exists()
    assert key not in session_store.held_sessions
    assert client.get("/").status_code == 200


def test_wrong_password_is_rejected_and_guesses_are_throttled(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("web.access.login.LoginThrottle", lambda: LoginThrottle(clock))
    with unwritable():
        statuses = [Client().post("/login", {**RIGHT, "password": "guess"}).status_code for _ in range(8)]
        assert statuses == [200] * MAX_PER_NAME_AND_ADDRESS + [429] * 3
        assert Client().post("/login", RIGHT).status_code == 429
        clock.now += 31.0
        assert Client().post("/login", RIGHT).status_code == 302


def test_guesses_at_many_names_are_throttled_within_limited_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_throttle, "MAX_COUNTED_HERE", 30)
    throttle = LoginThrottle(Clock())
    with unwritable():
        waits = [throttle.attempt(f"n-{number}", "192.0.2.1") for number in range(MAX_PER_ADDRESS + 2)]
        assert waits[:MAX_PER_ADDRESS] == [0] * MAX_PER_ADDRESS
        assert min(waits[MAX_PER_ADDRESS:]) > 0
        for number in range(100):
            throttle.attempt("op", f"192.0.2.{number}")
    assert len(login_throttle._counted_here._full_at_s) == 30


def test_ended_session_is_not_restored(person: User) -> None:
    client = client_of(person)
    assert client.get("/").status_code == 200
    Session.objects.all().delete()
    store = SessionStore(client.cookies["sessionid"].value)
    store["a"] = 1
    with unwritable():
        assert client.get("/").status_code == 302
    assert client.get("/").status_code == 302


def test_changes_of_a_stored_session_are_lost_and_the_session_remains(person: User) -> None:
    client = client_of(person)
    store = SessionStore(client.cookies["sessionid"].value)
    store["note"] = "x"
    with unwritable():
        store.save()
        assert client.get("/").status_code == 200
    assert "note" not in SessionStore(store.session_key)
    assert SessionStore(store.session_key).get("_auth_user_id") == str(person.pk)


def test_sessions_in_memory_expire_and_are_limited() -> None:
    clock = Clock()
    held = HeldSessions(clock)
    held.put("a", "1")
    clock.now += HELD_S - 1
    held.put("a", "2")
    assert (held.get("a"), "a" in held) == ("2", True)
    clock.now += 1
    assert (held.get("a"), "a" in held) == (None, False), "using it does not prolong it"
    for number in range(MAX_HELD + 1):
        held.put(str(number), "x")
    assert ("0" in held, "1" in held) == (False, True)


def test_open_page_requires_no_write(person: User) -> None:
    client = client_of(person)
    with unwritable():
        assert client.get("/access/keys").status_code == 200
    assert client.get("/access/keys").status_code == 200
    ConsoleSession.objects.update(seen_at="2020-01-01T00:00:00Z")


def test_key_is_revoked_from_its_page_and_listed_as_not_stored(person: User, tenant: Tenant) -> None:
    client, key = client_of(person), new_key(tenant, "leaky")
    with unwritable():
        answer = client.post(f"/access/keys/{key.key_id}/revoke", {"why": "leaked"})
        page = page_text(client.get(answer["Location"]))
        assert "when it is writable again" in page
        assert "not stored yet" in page
        assert "0 active API keys" in page
        drawer = page_text(client.get(f"/access/keys?key={key.key_id}&revoke"))
        assert "Gateways reject this key." in drawer
        assert "Save changes" not in drawer
        assert "Revoke leaky?" not in drawer
    store_waiting(bus_revocations())
    assert key.prefix not in page_text(client.get("/access/keys"))


def test_without_the_bus_the_page_reports_that_nothing_was_revoked(person: User, tenant: Tenant) -> None:
    client, key = client_of(person), new_key(tenant)
    get_bus().connected = False
    with unwritable():
        answer = client.post(f"/access/keys/{key.key_id}/revoke")
    assert answer.status_code == 503
    assert "Not revoked" in page_text(answer)


@pytest.mark.parametrize(
    ("message", "title"),
    [(FULL, "The database’s disk is full"), ("attempt to write a readonly database", "The database is read-only")],
)
def test_other_changes_report_what_is_full_and_the_remedy(person: User, message: str, title: str) -> None:
    client = client_of(person)
    client.raise_request_exception = False
    with unwritable(message):
        answer = client.post("/access/tenants", {"slug": "new", "name": "New"})
        page = page_text(answer)
    assert answer.status_code == 503
    assert title in page
    assert "manage.py revoke_key" in page
    assert "no restart is needed" in page
    assert ("The state directory’s file system has" in page) == (message == FULL)


# -- the banner


def banner(client: Client) -> str:
    return " ".join(page_text(client.get("/")).split())


def test_fleet_page_reports_the_read_only_database_until_it_is_writable(person: User) -> None:
    client = client_of(person)
    assert "not writable" not in banner(client)
    with unwritable():
        client.post("/login", RIGHT)
        Client().post("/login", RIGHT)
        assert "The database is not writable: its disk is full." in banner(client)
    Client().post("/login", RIGHT)
    assert "not writable" not in banner(client)


def test_failure_is_remembered_for_a_limited_time() -> None:
    clock = Clock()
    writes = DatabaseWrites(clock)
    writes.failed(ValueError("no such thing"))
    assert writes.failing is None
    writes.failed(InternalError("cannot execute UPDATE in a read-only transaction"))
    assert writes.failing == Cause.READ_ONLY
    clock.now += REMEMBERED_S
    assert writes.failing is None


def test_fleet_page_counts_revocations_that_are_not_stored(person: User, tenant: Tenant) -> None:
    client, key = client_of(person), new_key(tenant)
    with unwritable():
        client.post(f"/access/keys/{key.key_id}/revoke")
    assert "1 API key is revoked at the gateways" in banner(client)
    store_waiting(bus_revocations())
    assert "revoked at the gateways" not in banner(client)


def test_fleet_page_reports_a_nearly_full_disk_and_its_users(person: User, monkeypatch: pytest.MonkeyPatch) -> None:
    make_pool()
    client, viewer = client_of(person), client_of(make_person("viewer of chat"))
    tier = {"medium": "STORAGE", "slots": 8192, "used_slots": 4096}
    reported("kv-1", report={"tiers": [tier], "disk_id": "d", "disk_reserve_bytes": GIB}, slot_bytes=1 << 20)
    reported("kv-2", report={"tiers": [tier], "disk_id": "other"}, slot_bytes=1 << 20)
    free = [20 * GIB]
    space = lambda _: DiskSpace(total_bytes=20 * GIB, free_bytes=free[0], disk_id="d")  # noqa: E731
    monkeypatch.setattr(installation_problems, "space_of", space)
    assert "disk" not in banner(client)
    free[0] = GIB // 4
    page = banner(client)
    assert "The state directory’s disk is nearly full: 256 MiB of 20.0 GiB free." in page.replace("\u202f", " ")
    assert "kv-1 with 4.00 GiB" in page.replace("\u202f", " ")
    assert "kv-2" not in page.partition("nearly full")[2].partition("block")[0]
    assert "--ssd-mib" in page
    free[0] = 1 << 20
    assert "disk is full" in banner(client)
    assert "disk" not in banner(viewer), "who has no role in all pools sees no installation"
