"""A pool's automations over REST: how they stand, the switches, the orders, and engines' health."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from controlplane.models import AuditEvent, EngineOrder, PlanRecord
from controlplane.services.actor import program
from controlplane.services.engine_verdicts import put_verdict
from tests.controlplane.api.world import Api, World

pytestmark = pytest.mark.django_db

ACTOR = program("tests")


def test_a_pool_says_how_it_steers_itself(api: Api) -> None:
    told = api.get("pools/pool-a/automation").json()
    assert (told["pool"], told["frozen"], told["override_engines"]) == ("pool-a", False, None)
    modes = {each["job"]: (each["mode"], each["in_force"]) for each in told["automations"]}
    assert modes == {
        "engine_health": ("act", "act"),
        "rebalance": ("advise", "advise"),
        "scaling": ("advise", "advise"),
        "prefill_decode": ("advise", "advise"),
    }
    assert told["orders"][0]["key"] == "order-a"
    assert told["engines"] == {"desired": 1, "running": 0, "failed": 0, "ordered": 1}


def test_freezing_shows_at_once_and_is_in_the_audit(api: Api) -> None:
    told = api.post("pools/pool-a/freeze", {"why": "an incident"}).json()
    assert told["frozen"]
    assert (told["changed_by"], told["why"]) == ("admin", "an incident")
    assert {each["in_force"] for each in told["automations"]} == {"frozen"}
    event = AuditEvent.objects.get(verb="pool.freeze")
    assert (event.before["frozen"], event.after["frozen"], event.why) == (False, True, "an incident")
    assert not api.post("pools/pool-a/unfreeze", {}).json()["frozen"]


def test_an_override_is_checked_and_ends(api: Api) -> None:
    until = (timezone.now() + timedelta(hours=1)).isoformat()
    told = api.post("pools/pool-a/override", {"engines": 3, "until": until}).json()
    scaling = next(each for each in told["automations"] if each["job"] == "scaling")
    assert (told["override_engines"], scaling["in_force"]) == (3, "override")
    assert api.post("pools/pool-a/end_override", {}).json()["override_engines"] is None
    for body, path in (
        ({"engines": 3}, "until"),
        ({"until": until}, "engines"),
        ({"engines": 0, "until": until}, "engines"),
        ({"engines": 3, "until": "2020-01-01T00:00:00Z"}, "until"),
        ({"engines": "3", "until": until}, "engines"),
        ({"engine": 3, "until": until}, "engine"),
    ):
        answer = api.post("pools/pool-a/override", body)
        assert answer.status_code == 400
        assert [each["path"] for each in answer.json()["errors"]][:1] == [path]


def test_orders_are_answered_once(api: Api) -> None:
    assert api.post("orders/order-a/confirm", {}).json()["state"] == "sent"
    assert EngineOrder.objects.get(key="order-a").told == {"confirmed_by": "admin"}
    assert api.post("orders/order-b/withdraw", {"why": "keep it"}).json()["state"] == "cancelled"
    refused = api.post("orders/order-b/confirm", {})
    assert refused.status_code == 409
    assert "does not wait for a person" in refused.json()["detail"]


def test_the_health_of_an_engine_names_its_reason(api: Api, world: World) -> None:
    assert api.get("engines/e-a/health").json()["state"] == "healthy"
    since = timezone.now()
    put_verdict(world.engines["a"], "quarantined", actor=ACTOR, since=since, code="stalled", reason="It stands still.")
    told = api.get("engines/e-a/health").json()
    assert (told["engine"], told["state"], told["code"], told["reason"]) == (
        "e-a",
        "quarantined",
        "stalled",
        "It stands still.",
    )


def test_plans_are_listed_the_newest_first_and_narrowed(api: Api) -> None:
    now = timezone.now()
    for number, job in enumerate(("scaling", "rebalance", "scaling")):
        PlanRecord.objects.create(
            pool="pool-a", job=job, at=now + timedelta(seconds=number), mode="act", changes=number == 0
        )
    rows = api.get("pools/pool-a/plans?job=scaling").json()["results"]
    assert [row["changes"] for row in rows] == [False, True]
    assert len(api.get("pools/pool-a/plans?changes=true").json()["results"]) == 1
    assert api.get("pools/pool-b/plans").json()["results"] == []


def test_a_pool_s_actuator_is_checked_with_its_settings(api: Api) -> None:
    hook = {"actuator": "webhook", "actuator_settings": {"url": "https://fleet.example/hook"}}
    told = api.change("PATCH", "pools/pool-a", hook).json()
    assert told["actuator_settings"]["secret_variable"] == "SWITCHYARD_WEBHOOK_SECRET"
    wrong = api.change("PATCH", "pools/pool-a", {"actuator_settings": {"url": "file:///etc/passwd"}})
    assert wrong.status_code == 400
    assert wrong.json()["errors"][0]["path"] == "actuator_settings.url"
