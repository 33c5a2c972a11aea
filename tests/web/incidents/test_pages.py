"""The pages of incidents: who sees them, what they show, and what their buttons do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from django.db import transaction
from django.test import Client
from django.urls import reverse

from controlplane.fleet.models.pool import Pool
from controlplane.incidents.models.incident import Incident
from controlplane.incidents.notices import episode_of, publish_notices
from controlplane.incidents.report import burn_words, report_of
from controlplane.platform import audit
from controlplane.platform.actor import person, program
from controlplane.platform.bus import get_bus
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.trials.models.whatif import WhatIf
from tests.controlplane.incidents.scene import JobScene
from tests.controlplane.platform.api.world import make_world
from tests.controlplane.request_log.recordings.traffic import START
from tests.page_text import page_text
from tests.web.role_clients import client_of, make_person, make_pool

pytestmark = pytest.mark.django_db


@pytest.fixture
def incident(db: None) -> Iterator[Incident]:
    get_bus.cache_clear()
    make_pool("pool-0")
    scene = JobScene()
    incident = scene.flood()
    publish_notices(scene.at)
    yield incident
    get_bus.cache_clear()


@pytest.fixture
def operator() -> Client:
    return client_of(make_person("operator"))


def test_the_list_counts_open_incidents_in_navigation_and_tab(incident: Incident, operator: Client) -> None:
    text = operator.get("/incidents").content.decode()
    assert "1 open incident" in text
    assert "Tenant acme sends a flood of requests" in text
    assert 'class="nav-count"' in text
    assert "<title>◆ " in text
    assert "No incidents match" in operator.get("/incidents?state=closed").content.decode()


def test_the_traffic_of_an_incident_can_be_kept_from_its_page(incident: Incident, operator: Client) -> None:
    link = re.search(r'href="(/trials/recordings\?[^"]+)"', operator.get(f"/incidents/{incident.pk}").content.decode())
    assert link is not None
    form = operator.get(link[1].replace("&amp;", "&")).content.decode()
    for value in (f"Incident {incident.pk}", incident.onset.strftime("%Y-%m-%dT%H:%M:%S")):
        assert f'value="{value}' in form
    assert re.search(rf'<option value="{incident.pool}" selected>', form)


def test_the_page_says_what_why_whom_and_what_to_do(incident: Incident, operator: Client) -> None:
    text = operator.get(f"/incidents/{incident.pk}").content.decode()
    for words in ("What is wrong", "Limit the key that sends them", "Tenants hit", "What changed before", "Opened"):
        assert words in text
    counted = episode_of(incident)
    ended = f"ended_since={counted.counted_from:.3f}&amp;ended_until={counted.counted_to:.3f}"
    assert f"/requests?{ended}&amp;pool=pool-0&amp;tenant=acme" in text
    assert "<html" not in operator.get(f"/incidents/{incident.pk}?fragment=1").content.decode()


def test_the_page_has_the_events_of_engines_and_the_burn_of_each_class(incident: Incident, operator: Client) -> None:
    at = incident.onset + timedelta(seconds=3)
    with transaction.atomic():
        stored = audit.record(program("t"), "engine.lost", "engine", "e", pool="pool-0", why="e-03 is lost: silent")
    AuditEvent.objects.filter(pk=stored.pk).update(at=at)
    text = " ".join(operator.get(f"/incidents/{incident.pk}").content.decode().split())
    assert re.search(rf"<b>Lost</b><time[^>]*>{at:%H:%M:%S}</time>\s*<p>e-03 is lost: silent</p>", text)
    chat = next(row for row in report_of(incident, program("t"))["classes"] if row["name"] == "chat")
    classes = text.partition('id="classes-title"')[2].partition("</section>")[0]
    assert f'<td class="number">{burn_words(chat["burn"])}</td>' in classes
    assert "Regions hit" not in text


def test_an_engine_that_is_back_needs_no_restart_and_changes_are_in_words(incident: Incident, operator: Client) -> None:
    lost_at, back_at = (incident.onset + timedelta(seconds=number) for number in (3, 20))
    with transaction.atomic():
        for verb, at in (("engine.lost", lost_at), ("engine.probation", back_at)):
            after = {"at": at.timestamp()}
            stored = audit.record(program("t"), verb, "engine", "e-3", pool="pool-0", after=after)
            AuditEvent.objects.filter(pk=stored.pk).update(at=at + timedelta(seconds=9))
        drained = audit.record(
            person(make_person("admin"), via="console"), "engine.drain", "engine", "e-4", pool="pool-0"
        )
        AuditEvent.objects.filter(pk=drained.pk).update(at=incident.onset - timedelta(seconds=60))
    cause = {"kind": "engine_lost", "subject": "e-3", "name": "e-3", "score": 0.9}
    Incident.objects.update(detail={**incident.detail, "causes": [cause]})
    text = page_text(operator.get(f"/incidents/{incident.pk}"))
    assert f"e-3 is back since {back_at:%H:%M:%S} UTC. Read its log" in text
    assert "Check that the gateway can reach its address" not in text
    assert "engine.drain" not in text


def test_times_of_the_steps_are_those_of_the_timeline_and_rules_are_listed(operator: Client) -> None:
    make_pool("pool-0")
    scene = JobScene()
    scene.flood()
    scene.calm()
    incident = Incident.objects.get()
    assert incident.closed_at is not None
    text = page_text(operator.get(f"/incidents/{incident.pk}"))
    steps, _, timeline = text.partition("Timeline")
    closed = incident.entries.get(kind="closed").at
    assert f"last symptom {incident.closed_at:%H:%M:%S}; closed by itself {closed:%H:%M:%S}" in steps
    for at in (incident.onset, incident.opened_at, incident.closed_at, closed):
        assert f"{at:%H:%M:%S}" in timeline
    assert "Objective burns" in steps.partition("that fired in this incident")[2]


def test_buttons_acknowledge_note_and_close(incident: Incident, operator: Client) -> None:
    for act, form in (("acknowledge", {}), ("note", {"text": "Batch of acme"}), ("close", {})):
        answer = operator.post(reverse("incident-act", args=[incident.pk, act]), form)
        assert answer.status_code == 303
    text = operator.get(f"/incidents/{incident.pk}").content.decode()
    assert "Batch of acme" in text
    assert "by operator" in text
    assert operator.post(reverse("incident-act", args=[incident.pk, "whatif"])).status_code == 422


def test_reports_are_downloaded(incident: Incident, operator: Client) -> None:
    answer = operator.get(f"/incidents/{incident.pk}/report.md")
    assert answer["Content-Disposition"] == f'attachment; filename="incident-{incident.pk}.md"'
    assert answer.content.decode().startswith(f"# Incident {incident.pk}: ")
    assert operator.get(f"/incidents/{incident.pk}/report.json").json()["tenants"][0]["name"] == "acme"
    assert operator.get(f"/incidents/{incident.pk}/report.exe").status_code == 404


def test_a_person_of_another_pool_sees_nothing_and_a_viewer_has_no_buttons(incident: Incident) -> None:
    stranger = client_of(make_person("pool_viewer", make_pool("other")))
    assert stranger.get(f"/incidents/{incident.pk}").status_code == 404
    text = stranger.get("/incidents").content.decode()
    assert "acme" not in text
    assert "nav-count" not in text
    viewer = client_of(make_person("viewer"))
    assert "Acknowledge" not in viewer.get(f"/incidents/{incident.pk}").content.decode()
    answer = viewer.post(reverse("incident-act", args=[incident.pk, "close"]))
    assert answer.status_code == 403
    assert Pool.objects.filter(slug="pool-0").exists()


def test_one_click_tries_another_version_on_the_traffic_of_the_incident() -> None:
    world = make_world()
    incident = Incident.objects.get()
    begin = datetime.fromtimestamp(START, UTC)
    ended = begin + timedelta(hours=1)
    Incident.objects.update(onset=begin, closed_at=ended, last_bad_at=ended, state="closed")
    answer = client_of(world.people["operator_a"]).post(reverse("incident-act", args=[incident.pk, "whatif"]))
    started = WhatIf.objects.latest("pk")
    assert answer["Location"] == f"/trials/whatif/{started.pk}"
    assert (started.recording_name, started.draft.number) == (f"Incident {incident.pk}", 3)
