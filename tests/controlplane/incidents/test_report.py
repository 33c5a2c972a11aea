"""Reports name who was hit and what changed; people act by role; every cause has words and a documented cure."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.db import transaction
from django.utils import timezone

from controlplane.fleet.models.pool import Pool
from controlplane.incidents import words
from controlplane.incidents.handling import acknowledge, add_note, close, visible_incidents
from controlplane.incidents.report import length_label, markdown_of, report_of
from controlplane.platform import audit
from controlplane.platform.actor import Actor, command, person
from controlplane.platform.field_problems import InvalidFieldsError
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.roles import NotAllowedError
from planning.incidents import causes
from planning.incidents.causes import IncidentCause
from planning.incidents.signs import ALL
from tests.controlplane.incidents.scene import HOUR, JobScene
from tests.web.role_clients import make_person

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
