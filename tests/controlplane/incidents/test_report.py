"""Reports name who was hit and what changed; people act by role; every cause has words and a documented cure."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.models.region import Region
from controlplane.incidents import words
from controlplane.incidents.handling import acknowledge, add_note, close, visible_incidents
from controlplane.incidents.notices import episode_of
from controlplane.incidents.report import burn_words, length_label, markdown_of, report_of
from controlplane.objectives.objective import target_of
from controlplane.platform import audit
from controlplane.platform.actor import Actor, command, person, program
from controlplane.platform.field_problems import InvalidFieldsError
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.roles import NotAllowedError
from planning.incidents import causes
from planning.incidents.causes import IncidentCause
from planning.incidents.signs import ALL
from tests.controlplane.incidents.scene import HOUR, JobScene
from tests.controlplane.request_log.store.records import keep, on_time, stored
from tests.web.role_clients import make_person, make_pool

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("bus")]
ROOT = Path(__file__).resolve().parents[3]
OPERATOR = command("otto")


def test_a_report_has_the_tenants_hit_exactly_and_what_changed_before() -> None:
    scene = JobScene()
    with transaction.atomic():
        for pool, verb in (("pool-0", "policy.publish"), ("pool-1", "pool.change")):
            event = audit.record(OPERATOR, verb, "policy", "p", pool=pool, after={"number": 2})
            AuditEvent.objects.filter(pk=event.pk).update(at=timezone.now() - HOUR / 4)
    report = report_of(scene.flood(), OPERATOR)
    assert report["why"].startswith("Tenant acme sends a flood of requests. ")
    assert report["tenants"][0]["name"] == "acme"
    for name in ("tenants", "keys", "classes", "lengths"):
        assert sum(row["missed"] for row in report[name]) == report["hit"]["missed"]
    assert {item["verb"]: item["verdict"] for item in report["changes"]} == {
        "policy.publish": "unlikely",
        "pool.change": "no",
    }
    assert [row["label"] for row in report["classes"]] == ["chat", "none or others"]
    text = markdown_of(report)
    assert f"| chat | {report['classes'][0]['requests']:,} |" in text
    assert f"| acme | {report['tenants'][0]['requests']:,} |" in text
    assert "**Why.** Tenant acme" in text


def test_rows_state_how_fast_they_burned_the_error_budget() -> None:
    report = report_of(JobScene().flood(), OPERATOR)
    target = target_of("pool-0")
    for name in ("tenants", "keys", "classes", "lengths"):
        for row in report[name]:
            burned = row["missed"] / row["requests"] / (1 - target)
            assert row["burn"] == pytest.approx(burned)
            assert f" | {burned:.1f}× |" in markdown_of(report)
    assert burn_words(None) == "—"


@pytest.mark.parametrize(("verb", "kind", "text"), [
    ("engine.lost", "lost", "e-03 is lost: health timed out"),
    ("engine.back", "back", "e-03 serves again; it was lost"),
    ("engine.restart", "restarted", "e-03 restarted as incarnation 2"),
    ("engine.quarantine", "quarantined", "e-03 is quarantined: no probe answered"),
    ("engine.readmit", "back", "e-03 gets all of its work again: probes answer"),
])  # fmt: skip
def test_the_timeline_has_what_happened_to_engines_meanwhile(verb: str, kind: str, text: str) -> None:
    incident = JobScene().flood()
    engine = Engine.objects.create(pool=make_pool("pool-0"), name="e-03", engine_id="engine-3", url="http://e-03")
    why = text.removeprefix("e-03 is quarantined: ").removeprefix("e-03 gets all of its work again: ")
    at = incident.onset + timedelta(seconds=5)
    with transaction.atomic():
        stored = audit.record(program("t"), verb, "engine", engine.engine_id, pool="pool-0", after={"x": 1}, why=why)
        for pool, shift in (("other", 5), ("pool-0", -4000)):
            elsewhere = audit.record(program("t"), verb, "engine", engine.engine_id, pool=pool, why="elsewhere")
            AuditEvent.objects.filter(pk=elsewhere.pk).update(at=incident.onset + timedelta(seconds=shift))
    AuditEvent.objects.filter(pk=stored.pk).update(at=at)
    timeline = report_of(incident, OPERATOR)["timeline"]
    assert {"at": at.isoformat(), "kind": kind, "text": text, "by": ""} in timeline
    assert not any("elsewhere" in entry["text"] for entry in timeline)
    assert timeline == sorted(timeline, key=lambda entry: entry["at"])


def test_an_event_of_the_history_has_the_time_of_the_event_not_of_its_record() -> None:
    incident = JobScene().flood()
    happened = incident.onset.timestamp() + 1.0
    with transaction.atomic():
        audit.record(program("t"), "engine.lost", "engine", "e", pool="pool-0", after={"at": happened}, why="gone")
    entry = next(entry for entry in report_of(incident, OPERATOR)["timeline"] if entry["kind"] == "lost")
    assert datetime.fromisoformat(entry["at"]).timestamp() == pytest.approx(happened)


def test_a_fleet_wide_incident_counts_requests_by_the_region_of_their_pool() -> None:
    incident = JobScene().flood()
    for slug, region in (("pool-a", "eu"), ("pool-b", "us"), ("pool-c", "us")):
        pool = make_pool(slug)
        pool.region = Region.objects.get_or_create(slug=region, defaults={"name": region.upper()})[0]
        pool.save()
    begin = episode_of(incident).counted_from
    late: dict[str, Any] = {"finished_after_s": 4.0}
    keep(
        stored("r-1", begin + 1, pool_id="pool-a", **late),
        stored("r-2", begin + 1, pool_id="pool-b", outcome="failed", error="timeout", **late),
        stored("r-3", begin + 2, pool_id="pool-c", **late),
        on_time("r-4", begin + 2, share=0.25, finished_after_s=1.0),
        stored("r-5", begin - 60, pool_id="pool-a", **late),
        stored("r-6", begin + 1, pool_id="pool-a", outcome="cancelled", late=False, **late),
    )
    assert report_of(incident, OPERATOR)["regions"] == []
    incident.pool = ""
    rows = {row["name"]: row for row in report_of(incident, OPERATOR)["regions"]}
    assert {name: (row["requests"], row["late"], row["failed"]) for name, row in rows.items()} == {
        "EU": (5, 1, 0), "US": (2, 1, 1),
    }  # fmt: skip
    assert rows["EU"]["on_time"] == pytest.approx(0.8)
    assert "## Regions hit" in markdown_of(report_of(incident, OPERATOR))


def test_a_publish_right_before_the_onset_is_the_cause() -> None:
    scene = JobScene()
    scene.run(300)
    with transaction.atomic():
        event = audit.record(OPERATOR, "policy.publish", "policy", "p", pool="pool-0")
    AuditEvent.objects.filter(pk=event.pk).update(at=scene.at)
    scene.world.change("policy", "2", "v2 live")
    scene.watch._changes.extend(scene.world.changes)
    scene.world.pool().late = 0.4
    scene.run(70)
    incident = visible_incidents(OPERATOR).get()
    assert incident.title.endswith("Policy v2 went live")
    assert [item["verdict"] for item in report_of(incident, OPERATOR)["changes"]] == ["cause"]


def test_people_act_on_incidents_of_their_pools_and_see_no_others(pool: Pool) -> None:
    incident = JobScene().flood()
    viewer, operator = (person(make_person(role, pool), via="console") for role in ("pool_viewer", "pool_operator"))
    assert not visible_incidents(viewer).exists()
    Pool.objects.filter(pk=pool.pk).update(slug="pool-0")
    assert visible_incidents(viewer).get() == incident
    for act in (acknowledge, close):
        with pytest.raises(NotAllowedError):
            act(incident, actor=viewer)
    assert acknowledge(incident, actor=operator)
    assert not acknowledge(incident, actor=Actor("later", "api"))
    add_note(incident, "  It is the batch. ", actor=operator)
    with pytest.raises(InvalidFieldsError):
        add_note(incident, " ", actor=operator)
    assert close(incident, actor=operator)
    assert (incident.acknowledged_by, incident.closed_by) == ("pool_operator", "pool_operator")
    entries = incident.entries.exclude(by="").values_list("kind", "text")
    assert list(entries) == [("acknowledged", ""), ("note", "It is the batch."), ("closed", "")]
    verbs = AuditEvent.objects.filter(actor_name="pool_operator").order_by("id").values_list("verb", flat=True)
    assert list(verbs) == ["incident.acknowledge", "incident.note", "incident.close"]


def test_every_cause_has_words_and_the_cure_of_the_document() -> None:
    kinds = {value for name, value in vars(causes).items() if name.isupper() and isinstance(value, str)} - {ALL}
    assert set(words.CAUSES) == kinds
    document = (ROOT / "docs/troubleshooting.md").read_text()
    for kind, entry in words.CAUSES.items():
        cause = IncidentCause(kind=kind, subject="e-1", name="e-1", score=0.7)
        for text in (entry.finding(cause), entry.evidence(cause)):
            assert text.startswith("e-1") or not text[0].islower()
        assert entry.cure in document


def test_lengths_are_ranges_in_words() -> None:
    assert [length_label(name) for name in ("0", "1024", "65536", "unread", "")] == [
        "under 1k",
        "1k–4k",
        "64k or more",
        "not read",
        "others",
    ]
