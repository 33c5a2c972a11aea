"""Each person reads times in their own zone and on their own clock; programs and fields read and take UTC."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from controlplane.access.models.person import Person
from controlplane.access.models.role_grant import RoleGrant
from controlplane.platform.format import NARROW_SPACE
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.role import Role
from tests.page_text import page_text
from tests.web.role_clients import client_of, make_person

pytestmark = pytest.mark.django_db
SETTINGS = "/access/you/settings"
AT = timezone.datetime(2026, 11, 20, 23, 30, 5, 250_000, tzinfo=timezone.get_default_timezone())


@pytest.fixture
def viewer() -> User:
    user = User.objects.create(username="viewer")
    RoleGrant.objects.create(user=user, role=Role.VIEWER)
    AuditEvent.objects.create(at=AT, actor_name="boss", via="console", verb="pool.change", object_kind="pool")
    return user


def shown(client: Client, event: AuditEvent | None = None) -> str:
    return page_text(client.get(f"/audit?event={(event or AuditEvent.objects.get()).pk}"))


def test_times_are_in_the_browsers_zone_until_the_person_chooses_one(viewer: User) -> None:
    client = client_of(viewer)
    assert "2026-11-20 23:30:05.250 UTC</time>" in shown(client)
    assert 'data-time-zone="UTC" data-clock="24"' in shown(client)
    client.cookies["time_zone"] = "Asia/Tokyo"
    assert "2026-11-21 08:30:05.250 Asia/Tokyo</time>" in shown(client)
    assert "times in Asia/Tokyo" in shown(client)
    form = {"time_zone": "America/New_York", "clock": "12", "theme": ""}
    assert client.post(SETTINGS, form)["Location"] == f"{SETTINGS}?said=settings-saved"
    page = shown(client)
    assert f"2026-11-20 6:30:05.250{NARROW_SPACE}pm America/New_York</time>" in page
    assert 'data-time-zone="America/New_York" data-clock="12"' in page
    assert '<option value="America/New_York" selected>' in page_text(client.get(SETTINGS))
    other = client_of(User.objects.get(pk=viewer.pk))
    assert "America/New_York</time>" in shown(other)
    other.post(SETTINGS, {"time_zone": "UTC", "clock": "24", "theme": ""})
    assert "2026-11-20 23:30:05.250 UTC</time>" in shown(client)


@pytest.mark.parametrize("zone", ["../../etc/passwd", "Mars/Base", "x" * 5000, "/etc/localtime", "utc\n"])
def test_unknown_zones_of_a_browser_are_ignored(viewer: User, zone: str) -> None:
    client = client_of(viewer)
    client.cookies["time_zone"] = zone
    assert "2026-11-20 23:30:05.250 UTC</time>" in shown(client)


def test_one_persons_zone_is_not_anothers(viewer: User) -> None:
    Person.objects.filter(pk=viewer.pk).update(time_zone="Asia/Tokyo", clock="12")
    assert "Asia/Tokyo" in shown(client_of(viewer))
    assert "2026-11-20 23:30:05.250 UTC</time>" in shown(client_of(make_person("operator")))


def test_answers_of_the_api_are_in_utc(viewer: User) -> None:
    Person.objects.filter(pk=viewer.pk).update(time_zone="Asia/Tokyo", clock="12")
    client = client_of(viewer)
    (event,) = client.get("/api/v1/audit").json()["results"]
    assert event["at"] == "2026-11-20T23:30:05.250000Z"


def test_fields_for_times_take_utc(viewer: User) -> None:
    Person.objects.filter(pk=viewer.pk).update(time_zone="Asia/Tokyo")
    client = client_of(viewer)
    within = "/audit?since=2026-11-20 23:30&until=2026-11-20 23:31"
    assert "boss" in page_text(client.get(within))
    assert "boss" not in page_text(client.get("/audit?since=2026-11-21 08:30"))


def test_invalid_settings_are_marked_and_not_stored(viewer: User) -> None:
    client = client_of(viewer)
    answer = client.post(SETTINGS, {"time_zone": "Mars/Base", "clock": "13", "theme": "dark"})
    assert answer.status_code == 422
    assert 'id="clock-error"' in page_text(answer)
    assert 'id="time_zone-error"' in page_text(client.post(SETTINGS, {"time_zone": "Mars/Base", "clock": "24"}))
    person = Person.objects.get(pk=viewer.pk)
    assert (person.time_zone, person.clock, person.theme, person.revision) == ("", "24", "", 1)


def test_theme_follows_the_person_and_a_switch_of_the_browser_wins(viewer: User) -> None:
    client = client_of(viewer)
    assert client.post(SETTINGS, {"time_zone": "", "clock": "24", "theme": "light"}).cookies["theme"].value == "light"
    other = client_of(User.objects.get(pk=viewer.pk))
    assert 'data-theme="light"' in page_text(other.get("/audit"))
    other.cookies["theme"] = "dark"
    assert 'data-theme="dark"' in page_text(other.get("/audit"))
    other.post(SETTINGS, {"time_zone": "", "clock": "24", "theme": ""})
    assert "data-theme" not in page_text(other.get("/audit"))


def test_people_without_a_role_have_settings() -> None:
    client = client_of(User.objects.create(username="plain"))
    answer = client.post(SETTINGS, {"time_zone": "Asia/Tokyo", "clock": "24", "theme": ""})
    assert answer.status_code == 303, page_text(answer)
    assert Person.objects.get().time_zone == "Asia/Tokyo"


def test_preferences_cost_no_query(viewer: User, django_assert_num_queries: DjangoAssertNumQueries) -> None:
    client = client_of(viewer)
    client.get("/help")
    before = Person.objects.filter(pk=viewer.pk).update(time_zone="Asia/Tokyo")
    assert before == 1
    with django_assert_num_queries(4) as asked:
        client.get("/help")
    assert "controlplane_person" in asked[1]["sql"]
