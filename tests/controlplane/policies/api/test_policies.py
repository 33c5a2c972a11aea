"""Policies over REST: drafts, validation, publish conflicts, and rollback."""

from __future__ import annotations

import pytest

from controlplane.publication.snapshot import build_snapshot
from tests.controlplane.platform.api.world import Api, World

pytestmark = pytest.mark.django_db
POLICY = "policies/policy-a"
WRONG = {"ttft_slo_s": 0, "queue_limit": "many", "colour": 1, "placement": {"name": "nonsense"}}


def live(pool_id: str = "pool-a") -> tuple[int, float]:
    (pool,) = [pool for pool in build_snapshot(at=0.0).pools if pool.pool_id == pool_id]
    return pool.policy_version, pool.policy.ttft_slo_s


def test_an_invalid_document_is_rejected_with_all_its_errors(api: Api) -> None:
    answer = api.post(f"{POLICY}/versions", {"document": WRONG})
    assert answer.status_code == 400
    assert {error["path"] for error in answer.json()["errors"]} >= {"ttft_slo_s", "queue_limit", "colour"}
    assert len(api.get(f"{POLICY}/versions").json()["results"]) == 3
    assert live() == (1, 5.0)


def test_a_document_can_be_checked_without_storing_it(api: Api) -> None:
    wrong = api.post("policies/validate", {"document": WRONG}).json()
    assert (wrong["valid"], wrong["document"]) == (False, None)
    assert {error["path"] for error in wrong["errors"]} >= {"ttft_slo_s", "queue_limit"}
    right = api.post("policies/validate", {"document": {"ttft_slo_s": 3.0}}).json()
    assert (right["valid"], right["errors"]) == (True, [])
    assert right["document"]["prefill_window_tokens"] == 8192


def test_schema_has_ranges_and_descriptions(api: Api) -> None:
    schema = api.get("policies/schema").json()
    field = schema["$defs"]["WholePolicy"]["properties"]["ttft_slo_s"]
    assert (field["exclusiveMinimum"], field["maximum"], field["default"]) == (0, 3600, 5.0)
    assert len(field["description"]) > 20


def test_publishing_reaches_the_snapshot(api: Api) -> None:
    answer = api.post(f"{POLICY}/versions/2/publish", {"instead_of": 1, "why": "tighter"})
    assert answer.status_code == 200
    assert answer.json()["published_at"] is not None
    assert live() == (2, 2.0)
    assert live("pool-b") == (1, 5.0)


def test_slower_editor_gets_the_live_version(api: Api) -> None:
    api.post(f"{POLICY}/versions/2/publish", {"instead_of": 1})
    mine = api.post(f"{POLICY}/versions", {"document": {"ttft_slo_s": 9.0}, "based_on": 1}).json()
    answer = api.post(f"{POLICY}/versions/{mine['number']}/publish", {"instead_of": 1})
    assert answer.status_code == 412
    assert answer.json()["current"]["number"] == 2
    assert answer.json()["current"]["document"]["ttft_slo_s"] == 2.0
    assert live() == (2, 2.0)
    assert api.post(f"{POLICY}/versions/{mine['number']}/publish", {"instead_of": 2}).status_code == 200


def test_rollback_takes_one_request(api: Api) -> None:
    api.post(f"{POLICY}/versions/2/publish", {"instead_of": 1})
    answer = api.post(f"{POLICY}/roll_back", {"number": 1, "instead_of": 2, "why": "late"})
    assert answer.status_code == 201
    assert answer.json()["number"] == 4
    assert live() == (4, 5.0)
    assert api.post(f"{POLICY}/roll_back", {"number": 1, "instead_of": 2}).status_code == 412
    assert api.post(f"{POLICY}/roll_back", {"number": 99, "instead_of": 4}).status_code == 404


def test_publishing_changes_the_etag_of_the_policy(api: Api) -> None:
    before = api.get(POLICY)["ETag"]
    api.post(f"{POLICY}/versions/2/publish", {"instead_of": 1})
    assert api.get(POLICY)["ETag"] != before


def test_policy_of_several_pools_requires_the_role_in_each(world: World, api: Api) -> None:
    api.change("PATCH", "pools/pool-b", {"policy": "policy-a"})
    operator = Api(world, "operator_a")
    drafted = operator.post(f"{POLICY}/versions", {"document": {"ttft_slo_s": 1.0}})
    assert drafted.status_code == 201
    assert operator.post(f"{POLICY}/versions/3/publish", {"instead_of": 1}).status_code == 403
    assert Api(world, "operator").post(f"{POLICY}/versions/3/publish", {"instead_of": 1}).status_code == 200


def test_audit_shows_what_a_publish_changed(api: Api) -> None:
    api.post(f"{POLICY}/versions/2/publish", {"instead_of": 1, "why": "tighter"})
    (event,) = api.get("audit?verb=policy.publish&object_id=policy-a&actor=admin").json()["results"]
    documents = [event[side]["routing_document"]["ttft_slo_s"] for side in ("before", "after")]
    assert (documents, event["why"], event["pool"]) == ([5.0, 2.0], "tighter", "pool-a")
