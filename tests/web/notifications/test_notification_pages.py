"""The Notifications pages: who sees them, what they show, and what their buttons do."""

from __future__ import annotations

import re
from datetime import timedelta
from unittest.mock import patch

import pytest
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from controlplane.incidents.models.incident import Incident
from controlplane.incidents.rules import publish_conditions, rule_states
from controlplane.notifications.changing import create
from controlplane.notifications.job import run
from controlplane.notifications.models.notification import NotificationChannel, NotificationRoute, Silence
from controlplane.platform.actor import program
from controlplane.platform.models.audit_event import AuditEvent
from tests.controlplane.conftest import bus
from tests.controlplane.incidents.scene import JobScene
from tests.web.role_clients import client_of, make_person, make_pool

__all__ = ["bus"]

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("bus")]
ACTOR = program("test")
PAGES = (
    "/notifications",
    "/notifications/rules",
    "/notifications/channels",
    "/notifications/routes",
    "/notifications/silences",
)
CHANNEL = {"slug": "pager", "name": "Pager, on call", "address_env": "HEADWAY_NOTIFY_MAIN"}


def words(answer: HttpResponse) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode()))


@pytest.fixture
def admin(db: None) -> Client:
    make_pool("pool-0")
    return client_of(make_person("admin"))


@pytest.fixture
def routed(db: None) -> NotificationRoute:
    channel = create(NotificationChannel, actor=ACTOR, **CHANNEL)
    return create(NotificationRoute, slug="all", channel=channel, actor=ACTOR)


def test_an_admin_adds_a_channel_a_route_and_a_silence_by_forms(admin: Client) -> None:
    assert "Headway notifies no person" in words(admin.get("/notifications"))
    added = admin.post("/notifications/channels", CHANNEL, follow=True)
    assert "Added." in words(added)
    given = {
        "slug": "all",
        "channel": "pager",
        "events": ["opened", "closed"],
        "quiet_from": "22:00",
        "time_zone": "UTC",
    }
    rejected = admin.post("/notifications/routes", given)
    assert rejected.status_code == 422
    assert "Set both ends of the quiet hours" in words(rejected)
    stored = admin.post("/notifications/routes", given | {"quiet_to": "07:00", "time_zone": "UTC"}, follow=True)
    assert "all pager opened, closed Warning" in words(stored)
    assert NotificationRoute.objects.get().events == ["opened", "closed"]
    admin.post("/notifications/silences", {"slug": "upgrade", "until": "2099-12-01T06:00:00Z", "reason": "upgrade"})
    assert Silence.objects.get().until.year == 2099
    in_use = admin.post("/notifications/channels", {"object": "pager", "do": "delete"})
    assert in_use.status_code == 409
    assert "is used by notification route all" in words(in_use)
    assert "slug,pool" in admin.get("/notifications/silences.csv").content.decode()


def test_a_silence_ends_a_chosen_time_from_now_and_is_about_what_exists(admin: Client) -> None:
    incident = JobScene().flood()
    form = admin.get("/notifications/silences?new").content.decode()
    assert f'<option value="{incident.pk}">' in re.sub(r"\s+>", ">", form)
    assert '<option value="pool-0">' in re.sub(r"\s+>", ">", form)
    given = {"slug": "upgrade", "pool": "pool-0", "incident": "", "until_in": "120", "until": "", "reason": "upgrade"}
    assert "1 active silence" in words(admin.post("/notifications/silences", given, follow=True))
    left = Silence.objects.get().until - timezone.now()
    assert timedelta(minutes=119) < left <= timedelta(minutes=120)
    rejected = admin.post("/notifications/silences", given | {"slug": "other", "until_in": ""})
    assert rejected.status_code == 422
    assert "Enter the until" in words(rejected)
    changed = {"object": "upgrade", "revision": "1", "until_in": "", "until": "2099-12-01T06:00:00", "reason": "longer"}
    assert admin.post("/notifications/silences", changed).status_code == 303
    assert Silence.objects.get().until.year == 2099
    assert 'value="2099-12-01T06:00:00"' in admin.get("/notifications/silences?object=upgrade").content.decode()


def test_a_test_message_states_its_result(
    admin: Client, routed: NotificationRoute, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEADWAY_NOTIFY_MAIN", raising=False)
    page = words(admin.post("/notifications/channels", {"object": "pager", "do": "test"}, follow=True))
    assert "Not delivered just now HEADWAY_NOTIFY_MAIN is not set in this process. Correct the variable" in page
    assert AuditEvent.objects.filter(verb="notification_channel.test").count() == 1
    assert admin.post("/notifications/channels", {"object": "pager", "do": "other"}).status_code == 422


def test_pages_are_for_people_of_all_pools(routed: NotificationRoute) -> None:
    pool = make_pool("pool-0")
    limited, viewer = client_of(make_person("pool_operator", pool)), client_of(make_person("viewer"))
    for page in PAGES:
        assert limited.get(page).status_code == 403
        assert viewer.get(page).status_code == 200
        assert viewer.post(page, CHANNEL).status_code in (403, 405)
    assert limited.get("/notifications/channels.csv").status_code == 403


def test_an_incident_shows_its_channels_and_an_operator_of_its_pool_silences_it(routed: NotificationRoute) -> None:
    operator = client_of(make_person("pool_operator", make_pool("pool-0")))
    viewer = client_of(make_person("viewer"))
    scene = JobScene()
    incident = scene.flood()
    address = f"/incidents/{incident.pk}"
    assert "No channel: see" in words(operator.get(address))
    assert viewer.post(f"{address}/silence").status_code == 403
    run(scene.at, lambda _variable, _message: "")
    assert "Pager, on call Incident opened, 1 message sent" in words(operator.get(address))
    assert "Silenced for 30 min" in words(operator.post(f"{address}/silence", follow=True))
    silence = Silence.objects.get()
    assert (silence.incident, silence.pool) == (incident.pk, "pool-0")
    assert silence.until > timezone.now()
    scene.calm()
    run(scene.at, lambda _variable, _message: "")
    page = words(viewer.get("/notifications?state=silenced"))
    assert f"Incident {incident.pk} closed" in page
    assert "Silence incident-" in page
    assert Incident.objects.get().state == "closed"


def test_the_rules_page_and_the_api_show_states_and_channels(admin: Client, routed: NotificationRoute) -> None:
    assert "The jobs process reports no states" in words(admin.get("/notifications/rules"))
    scene = JobScene()
    incident = scene.flood()
    publish_conditions(scene.watch, scene.at)
    with patch("controlplane.notifications.planned.rule_states", lambda _now: rule_states(scene.at)):
        page, answer = admin.get("/notifications/rules"), admin.get("/api/v1/alert_rules")
    assert "1 rule firing" in words(page)
    assert "in Prometheus only load deploy/prometheus to watch it Bus lost, critical" in words(page)
    assert f'href="/incidents/{incident.pk}"' in page.content.decode()
    rules = {rule["name"]: rule for rule in answer.json()["results"]}
    burn = rules["burn"]
    assert (burn["state"], burn["incident"], burn["channels"]) == ("firing", incident.pk, {"pager": []})
    assert burn["subjects"] == ["pool-0"]
    assert (rules["HeadwayBusLost"]["state"], rules["HeadwayBusLost"]["channels"]) == ("external", {})
