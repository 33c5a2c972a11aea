"""Canaries over REST from start to end, with their ETags."""

from __future__ import annotations

import pytest

from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import program
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.publish import draft
from controlplane.trials.models.canary import Canary
from tests.controlplane.platform.api.world import Api, World

pytestmark = pytest.mark.django_db


def test_a_canary_is_started_stepped_and_promoted(world: World) -> None:
    api = Api(world)
    number = draft(world.policies["b"], {"placement": {"name": "round_robin"}}, actor=program("test")).number
    body = {
        "policy": "policy-b",
        "version": number,
        "steps": [0.1, 0.5],
        "guardrails": {"late_more": 0.1},
        "why": "faster",
    }
    made = api.post("canaries", body)
    assert made.status_code == 201, made.content
    shown = made.json()
    assert (shown["share"], shown["against"], shown["advance"], shown["why"]) == (0.1, 1, "by_hand", "faster")
    assert shown["guardrails"]["late_more"] == 0.1
    assert (shown["evidence"]["requests"], shown["evidence"]["wait_s"]) == (40, None)
    path = f"canaries/{shown['key']}"
    forced = {"force": True, "why": "urgent"}
    stepped = api.post(f"{path}/step", forced, If_Match=made["ETag"])
    assert (stepped.status_code, stepped.json()["share"]) == (200, 0.5)
    stale = api.post(f"{path}/promote", {}, If_Match=made["ETag"])
    assert (stale.status_code, stale.json()["current"]["step"]) == (412, 1)
    promoted = api.post(f"{path}/promote", forced, If_Match=stepped["ETag"])
    assert (promoted.json()["state"], promoted.json()["evidence"]) == ("promoted", {})
    assert api.post(f"{path}/abort", {}).status_code == 409
    assert PolicyVersion.objects.get(policy=world.policies["b"], number=number).published_at is not None


def test_step_without_evidence_requires_force_and_a_reason(world: World) -> None:
    api = Api(world)
    number = draft(world.policies["b"], {"placement": {"name": "round_robin"}}, actor=program("test")).number
    made = api.post("canaries", {"policy": "policy-b", "version": number, "steps": [0.1, 0.5]}).json()
    for verb in ("step", "promote"):
        path = f"canaries/{made['key']}/{verb}"
        rejected = api.post(path, {})
        assert rejected.status_code == 409
        assert "0 of at least 40 requests evaluated per version." in rejected.json()["detail"]
        assert api.post(path, {"force": True}).json()["errors"][0]["path"] == "why"
        assert api.post(path, {"force": True, "why": "urgent"}).status_code == 200
        event = AuditEvent.objects.get(verb=f"canary.{verb}")
        assert event.why == "urgent"
        assert "0 of at least 40 requests evaluated per version." in event.after["without_evidence"]


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"policy": "policy-x", "version": 1}, "policy"),
        ({"policy": "policy-b", "version": 99}, "version"),
        ({"policy": "policy-b", "version": 2}, "version"),
        ({"policy": "policy-b", "version": 2, "steps": [2]}, "steps.0"),
        ({"policy": "policy-b", "version": 2, "advance": "soon"}, "advance"),
    ],
)
def test_invalid_canary_is_rejected_by_its_field(world: World, body: dict[str, object], path: str) -> None:
    answer = Api(world).post("canaries", body)
    assert answer.status_code == 400
    assert [item["path"] for item in answer.json()["errors"]] == [path]
    assert Canary.objects.count() == 1


def test_pool_gets_a_share_of_its_service_and_returns_it(world: World) -> None:
    api, beside = Api(world), Pool.objects.get(slug="pool-b")
    Pool.objects.create(
        slug="pool-new", name="new", region=beside.region, served_model=beside.served_model, policy=beside.policy,
        weight=0,
    )  # fmt: skip
    made = api.post("canaries", {"pool": "pool-new", "steps": [0.2], "why": "engine 0.9"})
    assert made.status_code == 201, made.content
    shown = made.json()
    assert (shown["pool"], shown["share"], shown["version"], shown["against"]) == ("pool-new", 0.2, 1, 1)
    assert "0 of at least 40 requests evaluated per side." in shown["evidence"]["missing"]
    aborted = api.post(f"canaries/{shown['key']}/abort", {"why": "late"}, If_Match=made["ETag"])
    assert (aborted.json()["state"], aborted.json()["reason"]) == ("aborted", "late")


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"pool": "pool-x"}, "pool"),
        ({"pool": "pool-b"}, "pool"),
        ({"pool": "pool-b", "policy": "policy-b", "version": 2}, "pool"),
        ({"policy": "policy-b"}, "version"),
        ({}, "policy"),
    ],
)
def test_candidate_is_either_a_version_or_a_pool(world: World, body: dict[str, object], path: str) -> None:
    answer = Api(world).post("canaries", body)
    assert answer.status_code == 400
    assert [item["path"] for item in answer.json()["errors"]] == [path]
