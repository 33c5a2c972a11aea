"""A pool's automations over REST: state, switches, actions, and engine health."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from controlplane.automation.engine_verdicts import put_verdict
from controlplane.automation.models.engine_action import EngineAction
from controlplane.automation.models.plan_record import PlanRecord
from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import program
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.models.job_run import JobRun, JobState
from tests.controlplane.platform.api.world import Api, World

pytestmark = pytest.mark.django_db

ACTOR = program("tests")


def test_pool_reports_the_state_of_its_automations(api: Api) -> None:
    state = api.get("pools/pool-a/automation").json()
    assert (state["pool"], state["frozen"], state["override_engines"]) == ("pool-a", False, None)
    modes = {item["job"]: (item["mode"], item["in_force"]) for item in state["automations"]}
    assert modes == {
        "engine_health": ("act", "act"),
        "rebalance": ("advise", "advise"),
        "scaling": ("advise", "advise"),
        "prefill_decode": ("advise", "advise"),
    }
    assert state["actions"][0]["key"] == "action-a"
    assert state["engines"] == {"desired": 1, "running": 0, "failed": 0, "asleep": 0, "open_actions": 1}


def test_freeze_shows_at_once_and_is_audited(api: Api) -> None:
    state = api.post("pools/pool-a/freeze", {"why": "an incident"}).json()
    assert state["frozen"]
    assert (state["changed_by"], state["why"]) == ("admin", "an incident")
    assert {item["in_force"] for item in state["automations"]} == {"frozen"}
    event = AuditEvent.objects.get(verb="pool.freeze")
    assert (event.before["frozen"], event.after["frozen"], event.why) == (False, True, "an incident")
    assert not api.post("pools/pool-a/unfreeze", {}).json()["frozen"]


def test_override_is_validated_and_can_be_ended(api: Api) -> None:
    until = (timezone.now() + timedelta(hours=1)).isoformat()
    state = api.post("pools/pool-a/override", {"engines": 3, "until": until}).json()
    scaling = next(item for item in state["automations"] if item["job"] == "scaling")
    assert (state["override_engines"], scaling["in_force"]) == (3, "override")
    assert api.post("pools/pool-a/end_override", {}).json()["override_engines"] is None
    for body, path in (
        ({"engines": 3}, "until"),
        ({"until": until}, "engines"),
        ({"engines": 0, "until": until}, "engines"),
        ({"engines": 17, "until": until}, "engines"),
        ({"engines": 3, "until": "2020-01-01T00:00:00Z"}, "until"),
        ({"engines": "3", "until": until}, "engines"),
        ({"engine": 3, "until": until}, "engine"),
    ):
        answer = api.post("pools/pool-a/override", body)
        assert answer.status_code == 400
        assert [item["path"] for item in answer.json()["errors"]][:1] == [path]


def test_action_is_confirmed_or_withdrawn_once(api: Api) -> None:
    assert api.post("actions/action-a/confirm", {}).json()["state"] == "sent"
    assert EngineAction.objects.get(key="action-a").actuator_state == {"confirmed_by": "admin"}
    assert api.post("actions/action-b/withdraw", {"why": "keep it"}).json()["state"] == "cancelled"
    rejected = api.post("actions/action-b/confirm", {})
    assert rejected.status_code == 409
    assert "is not waiting for confirmation" in rejected.json()["detail"]


def test_health_of_an_engine_names_its_reason(api: Api, world: World) -> None:
    assert api.get("engines/e-a/health").json()["state"] == "healthy"
    since = timezone.now()
    put_verdict(world.engines["a"], "quarantined", actor=ACTOR, since=since, code="stalled", reason="It stands still.")
    health = api.get("engines/e-a/health").json()
    assert (health["engine"], health["state"], health["code"], health["reason"]) == (
        "e-a",
        "quarantined",
        "stalled",
        "It stands still.",
    )


def test_operator_sets_and_ends_a_health_verdict(api: Api) -> None:
    health = api.post("engines/e-a/quarantine", {"why": "smells of smoke"}).json()
    assert (health["state"], health["code"], health["reason"]) == (
        "quarantined",
        "by_hand",
        "by admin: smells of smoke",
    )
    assert api.post("engines/e-a/quarantine", {}).json() == health
    trusted = api.post("engines/e-a/trust", {"why": "only dust"}).json()
    assert (trusted["state"], trusted["code"]) == ("healthy", "trusted")
    assert trusted["until"] is not None
    ended = api.post("engines/e-a/end_verdict", {}).json()
    assert (ended["state"], ended["code"], ended["reason"]) == ("healthy", "", "override ended by admin")
    assert "No override is active" in api.post("engines/e-a/end_verdict", {}).json()["detail"]
    verbs = AuditEvent.objects.filter(object_id="e-a").order_by("pk").values_list("verb", "actor_name", "via")
    assert list(verbs)[-3:] == [
        ("engine.quarantine", "admin", "api"),
        ("engine.readmit", "admin", "api"),
        ("engine.end_trust", "admin", "api"),
    ]


def test_advice_is_shown_with_its_key_and_followed_once(api: Api, world: World) -> None:
    now = timezone.now()
    plan = {"at_s": now.timestamp() - 1, "add": ["mixed"], "drain": [], "reasons": [{"code": "x", "text": "too late"}]}
    JobRun.objects.create(
        job="scaling",
        shard=Pool.objects.get(slug="pool-a").pk,
        state=JobState.ACTIVE,
        started_at=now,
        plan=plan,
        outcome={"mode": "advise"},
    )
    EngineAction.objects.filter(pool__slug="pool-a").delete()
    automations = api.get("pools/pool-a/automation").json()["automations"]
    assert {item["job"]: item["advice"] for item in automations if item["advice"]} == {"scaling": "+mixed"}
    stale = api.post("pools/pool-a/follow_advice", {"job": "scaling", "advice": "+mixed,+mixed"})
    assert (stale.status_code, EngineAction.objects.filter(pool__slug="pool-a").count()) == (409, 0)
    followed = api.post("pools/pool-a/follow_advice", {"job": "scaling", "advice": "+mixed", "why": "agreed"}).json()
    assert [(item["kind"], item["by"]) for item in followed["actions"]] == [("start", "admin")]
    assert AuditEvent.objects.get(verb="pool.follow_advice").why == "agreed"
    again = api.post("pools/pool-a/follow_advice", {"job": "scaling", "advice": "+mixed"})
    assert "started since" in again.json()["detail"]
    wrong = api.post("pools/pool-a/follow_advice", {"job": "rebalance", "advice": "+mixed"})
    assert (wrong.status_code, wrong.json()["errors"][0]["path"]) == (400, "job")


def test_plans_are_listed_newest_first_and_filtered(api: Api) -> None:
    now = timezone.now()
    for number, job in enumerate(("scaling", "rebalance", "scaling")):
        PlanRecord.objects.create(
            pool="pool-a", job=job, at=now + timedelta(seconds=number), mode="act", changes=number == 0
        )
    rows = api.get("pools/pool-a/plans?job=scaling").json()["results"]
    assert [row["changes"] for row in rows] == [False, True]
    assert len(api.get("pools/pool-a/plans?changes=true").json()["results"]) == 1
    assert api.get("pools/pool-b/plans").json()["results"] == []


def test_actuator_of_a_pool_is_validated_with_its_settings(api: Api) -> None:
    hook = {"actuator": "webhook", "actuator_settings": {"url": "https://fleet.example/hook"}}
    changed = api.change("PATCH", "pools/pool-a", hook).json()
    assert changed["actuator_settings"]["secret_variable"] == "HEADWAY_WEBHOOK_SECRET"
    wrong = api.change("PATCH", "pools/pool-a", {"actuator_settings": {"url": "file:///etc/passwd"}})
    assert wrong.status_code == 400
    assert wrong.json()["errors"][0]["path"] == "actuator_settings.url"
