"""Release timelines, approvals, and scheduled publishes over REST."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from controlplane.platform.actor import program
from controlplane.policies.models.scheduled_publish import ScheduledPublish
from controlplane.policies.publish import draft
from controlplane.publication.snapshot import build_snapshot
from tests.controlplane.platform.api.world import Api, World

pytestmark = pytest.mark.django_db
POLICY = "policies/policy-a"
SECOND = f"{POLICY}/versions/2"


def live() -> int:
    return next(pool.policy_version for pool in build_snapshot(at=0.0).pools if pool.pool_id == "pool-a")


def steps(answer: dict[str, Any]) -> dict[str, str]:
    return {step["step"]: step["state"] for step in answer["release_timeline"]}


def test_version_shows_its_release_timeline(world: World, api: Api) -> None:
    timeline = steps(api.get(SECOND).json())
    assert timeline["drafted"] == timeline["validated"] == "done"
    assert (timeline["what_if"], timeline["scheduled"], timeline["live"]) == ("now", "now", "next")
    first = api.get(f"{POLICY}/versions/1").json()
    assert steps(first)["live"] == "now"
    listed = {row["number"]: row["release_timeline"] for row in api.get(f"{POLICY}/versions").json()["results"]}
    assert listed[1] == first["release_timeline"]


def test_longer_list_takes_no_more_queries(
    world: World, api: Api, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for _ in range(10):
        draft(world.policies["a"], {}, actor=program("test"))
    with django_assert_max_num_queries(16):
        assert len(api.get(f"{POLICY}/versions").json()["results"]) == 13


def test_approval_by_a_second_person_is_required_and_counts(world: World, api: Api) -> None:
    assert api.get(POLICY).json()["needs_approval"] is False
    assert api.change("PATCH", POLICY, {"needs_approval": True}).json()["needs_approval"] is True
    own = api.post(f"{POLICY}/versions", {"document": {}, "based_on": 1}).json()["number"]
    mine = f"{POLICY}/versions/{own}"
    rejected = api.post(f"{mine}/publish", {"instead_of": 1})
    assert rejected.status_code == 409
    assert "other than admin, who wrote it" in rejected.json()["detail"]
    assert api.post(f"{mine}/approve", {}).status_code == 409
    assert Api(world, "admin_key").post(f"{mine}/approve", {}).status_code == 409
    answer = Api(world, "operator").post(f"{mine}/approve", {"why": "read it"})
    assert answer.status_code == 200
    assert steps(answer.json())["approved"] == "done"
    assert api.post(f"{mine}/publish", {"instead_of": 1}).status_code == 200
    assert live() == own


def test_new_policy_can_require_approval(api: Api) -> None:
    made = api.post("policies", {"slug": "careful", "name": "Careful", "needs_approval": True})
    assert (made.status_code, made.json()["needs_approval"]) == (201, True)


def test_approval_can_be_withdrawn(world: World, api: Api) -> None:
    operator = Api(world, "operator")
    operator.post(f"{SECOND}/approve", {})
    answer = operator.post(f"{SECOND}/withdraw_approval", {})
    assert (answer.status_code, steps(answer.json())["approved"]) == (200, "skipped")
    assert operator.post(f"{SECOND}/withdraw_approval", {}).status_code == 409


def test_operators_cannot_disable_the_approval_requirement(world: World, api: Api) -> None:
    api.change("PATCH", POLICY, {"needs_approval": True})
    assert Api(world, "operator").change("PATCH", POLICY, {"needs_approval": False}).status_code == 403
    assert api.change("PATCH", POLICY, {"needs_approval": False}).status_code == 200


def test_a_publish_is_scheduled_read_and_cancelled(world: World, api: Api) -> None:
    path = f"{SECOND}/schedule"
    assert api.change("DELETE", path).json()["state"] == "cancelled"
    assert api.call("DELETE", path).status_code == 428
    assert api.change("DELETE", path).status_code == 409
    at = timezone.now() + timedelta(hours=3)
    made = api.post(path, {"at": at.isoformat(), "instead_of": 1, "why": "at night"})
    assert made.status_code == 201
    shown = api.get(path).json()
    assert (shown["version"], shown["state"], shown["by"], shown["why"]) == (2, "waiting", "admin", "at night")
    assert ScheduledPublish.objects.latest("pk").at == at
    assert live() == 1


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"at": "2020-01-01T00:00:00Z", "instead_of": 1}, 400),
        ({"at": "tomorrow", "instead_of": 1}, 400),
        ({"at": (timezone.now() + timedelta(days=40)).isoformat(), "instead_of": 1}, 400),
        ({"at": (timezone.now() + timedelta(days=1)).isoformat(), "instead_of": 7}, 412),
        ({"at": (timezone.now() + timedelta(days=1)).isoformat()}, 400),
    ],
)
def test_invalid_publish_time_is_rejected(world: World, api: Api, body: dict[str, Any], status: int) -> None:
    api.change("DELETE", f"{SECOND}/schedule")
    assert api.post(f"{SECOND}/schedule", body).status_code == status
    assert api.get(f"{POLICY}/versions/1/schedule").status_code == 404


def test_pools_report_whether_they_are_production(api: Api) -> None:
    assert api.get("pools/pool-a").json()["production"] is True
    assert api.change("PATCH", "pools/pool-a", {"production": False}).json()["production"] is False
