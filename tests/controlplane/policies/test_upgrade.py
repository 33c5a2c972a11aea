"""Versions, files, and requests of the previous schema are accepted everywhere and rewritten nowhere.

The tests represent a program with another previous schema. In that schema, the objective was named slo_ms, and the
automation's evenness band had other names.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from django.test import Client

from controlplane.automation.pool_policy import pool_policy
from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import program
from controlplane.policies.document.merge import changes_between
from controlplane.policies.document.problems import InvalidPolicyError, problems_of, validated
from controlplane.policies.document.text import completed, document_text
from controlplane.policies.models.policy import Policy
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.publish import draft, publish_version, roll_back
from controlplane.publication.snapshot import build_snapshot
from controlplane.trials.whatif.reading import CannotRunError, routing_of
from gateway.bus.bus import Bus
from gateway.contracts.snapshot import Snapshot, decode_snapshot, encode_snapshot
from gateway.contracts.wire import UnreadableMessageError
from planning.documents import automation_document
from routing.policy import policy_document
from routing.policy.schema_versions import SchemaLine
from tests.web.role_clients import client_of, make_person

ACTOR = program("test")
OLD = {"schema_version": 1, "slo_ms": 2500, "automation": {"schema_version": 1, "engines": 3}}
NEWER = {"schema_version": 3, "automation": {"schema_version": 9}}
pytestmark = pytest.mark.django_db


def _routing(old: dict[str, Any]) -> dict[str, Any]:
    return {**{name: old[name] for name in old if name != "slo_ms"}, "ttft_slo_s": old["slo_ms"] / 1000}


def _automation(old: dict[str, Any]) -> dict[str, Any]:
    return {"scaling": {"min_engines": old["engines"]}}


@pytest.fixture
def before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register upgraders for documents of schema 1."""
    monkeypatch.setattr(policy_document, "ROUTING_SCHEMA", SchemaLine("routing policies", 2, _routing))
    line = SchemaLine("automation policies", 2, _automation)
    monkeypatch.setattr(automation_document, "AUTOMATION_SCHEMA", line)


@pytest.fixture
def old(policy: Policy, pool: Pool, bus: Bus, before: None) -> PolicyVersion:
    """Return a version stored by the previous program."""
    automation = OLD["automation"]
    routing = {name: OLD[name] for name in OLD if name != "automation"}
    return PolicyVersion.objects.create(
        policy=policy, number=1, routing_document=routing, automation_document=automation
    )


def stored(version: PolicyVersion) -> tuple[Any, Any]:
    version_ = PolicyVersion.objects.get(pk=version.pk)
    return version_.routing_document, version_.automation_document


def test_old_document_is_read_in_the_current_schema(before: None) -> None:
    whole = validated(OLD)
    assert (whole.schema_version, whole.ttft_slo_s) == (2, 2.5)
    assert (whole.automation.schema_version, whole.automation.scaling.min_engines) == (2, 3)
    assert problems_of(OLD) == ()


def test_draft_of_an_old_document_is_stored_in_the_current_schema(policy: Policy, bus: Bus, before: None) -> None:
    version = draft(policy, OLD, actor=ACTOR)
    assert (version.routing_document["schema_version"], version.routing_document["ttft_slo_s"]) == (2, 2.5)


def test_old_version_goes_live_and_is_not_rewritten(old: PolicyVersion, pool: Pool) -> None:
    written = stored(old)
    publish_version(old, instead_of=None, actor=ACTOR)
    (entry,) = decode_snapshot(encode_snapshot(build_snapshot(at=0.0))).pools
    assert (entry.policy.schema_version, entry.policy.ttft_slo_s) == (2, 2.5)
    policy = pool_policy(Pool.objects.select_related("policy__live_version").get())
    assert (policy.routing.ttft_slo_s, policy.automation.scaling.min_engines) == (2.5, 3)
    assert routing_of(old).ttft_slo_s == 2.5
    assert stored(old) == written


def test_rollback_to_an_old_version_publishes_an_upgraded_copy(old: PolicyVersion, policy: Policy) -> None:
    written = stored(old)
    publish_version(draft(policy, {}, actor=ACTOR), instead_of=None, actor=ACTOR)
    copy = roll_back(policy, 1, instead_of=2, actor=ACTOR)
    assert (copy.routing_document["schema_version"], copy.routing_document["ttft_slo_s"]) == (2, 2.5)
    assert stored(old) == written


def test_old_version_is_compared_and_merged_in_the_current_schema(old: PolicyVersion) -> None:
    entries = changes_between(completed({}), completed(old.document))
    assert {".".join(entry.path) for entry in entries} == {"ttft_slo_s", "automation.scaling.min_engines"}


def test_pages_and_files_accept_an_old_document(old: PolicyVersion, policy: Policy, pool: Pool) -> None:
    publish_version(draft(policy, {}, actor=ACTOR), instead_of=None, actor=ACTOR)
    client: Client = client_of(make_person("operator", pool))
    text = client.get("/policies/p/compare?from=2&to=1").content.decode()
    assert "2.5" in text
    pasted = {"document": json.dumps(OLD), "shown": document_text(completed({})), "base": "2", "message": "pasted"}
    assert client.post("/policies/p", {**pasted, "do": "save"}).status_code == 302
    assert PolicyVersion.objects.get(number=3).routing_document["ttft_slo_s"] == 2.5


def test_rest_accepts_an_old_document(old: PolicyVersion, pool: Pool) -> None:
    client = client_of(make_person("operator", pool))
    sent = {"data": {"document": OLD, "message": "sent"}, "content_type": "application/json"}
    checked = client.post("/api/v1/policies/validate", {"document": OLD}, content_type="application/json").json()
    assert (checked["valid"], checked["document"]["ttft_slo_s"]) == (True, 2.5)
    assert client.post("/api/v1/policies/p/versions", **sent).json()["document"]["schema_version"] == 2


def test_newer_document_is_rejected_in_both_halves_with_a_remedy() -> None:
    with pytest.raises(InvalidPolicyError) as caught:
        validated(NEWER)
    assert [item.path for item in caught.value.field_problems] == ["schema_version", "automation.schema_version"]
    assert all("upgrade this program" in item.message for item in caught.value.field_problems)


def test_older_program_rolls_back_from_a_version_of_a_newer_one(
    policy: Policy, pool: Pool, bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    publish_version(draft(policy, {"ttft_slo_s": 3.0}, actor=ACTOR), instead_of=None, actor=ACTOR)
    newer = PolicyVersion.objects.create(policy=policy, number=2, routing_document={"schema_version": 3, "new": 1})
    Policy.objects.update(live_version=newer)
    assert [item.pool_id for item in build_snapshot(at=0.0).pools] == [pool.slug]
    assert "p v2 cannot be read: schema_version 3 is newer than 2" in caplog.text
    with pytest.raises(InvalidPolicyError):
        publish_version(newer, instead_of=2, actor=ACTOR)
    client = client_of(make_person("operator", pool))
    for page in ("/policies", "/policies/p", "/policies/p?draft=2", "/policies/p/compare?from=1&to=2"):
        assert client.get(page).status_code == 200
    rolled_back = client.post("/policies/p/roll-back", {"version": 1, "instead_of": 2, "why": "not readable"})
    assert rolled_back.status_code == 302
    (entry,) = build_snapshot(at=0.0).pools
    assert (entry.policy_version, entry.policy.ttft_slo_s) == (3, 3.0)


def test_what_if_of_a_newer_version_reports_why_it_cannot_run(policy: Policy) -> None:
    newer = PolicyVersion.objects.create(policy=policy, number=1, routing_document={"schema_version": 3})
    with pytest.raises(CannotRunError, match="upgrade this program"):
        routing_of(newer)


def snapshot_of(**changes: Any) -> bytes:
    plain = msgspec.to_builtins(Snapshot(version=1, published_at=0.0))
    return msgspec.msgpack.encode({**plain, **changes})


POOL = {"pool_id": "a", "name": "A", "region": "r", "served_model": "m"}


def test_gateway_reads_the_snapshot_of_an_older_program(before: None, monkeypatch: pytest.MonkeyPatch) -> None:
    line = SchemaLine("snapshots", 1, lambda older: {**older, "version": older["number"]})
    monkeypatch.setattr("gateway.contracts.snapshot.SNAPSHOT_SCHEMA", line)
    pools = [{**POOL, "policy": {"schema_version": 1, "slo_ms": 1500}}, POOL]
    decoded = decode_snapshot(snapshot_of(schema_version=0, number=7, pools=pools))
    assert (decoded.schema_version, decoded.version) == (1, 7)
    assert [pool.policy.ttft_slo_s for pool in decoded.pools] == [1.5, 5.0]


@pytest.mark.parametrize(
    "changes",
    [{"schema_version": 2}, {"pools": [{**POOL, "policy": {"schema_version": 3, "unheard_of": 1}}]}],
    ids=["snapshot", "policy"],
)
def test_gateway_rejects_the_snapshot_of_a_newer_program_with_a_remedy(changes: dict[str, Any]) -> None:
    with pytest.raises(UnreadableMessageError, match=r"(2 is newer than 1|3 is newer than 2).*upgrade this program"):
        decode_snapshot(snapshot_of(**changes))


@pytest.mark.parametrize("data", [b"", b"\xc0", snapshot_of(schema_version=0), snapshot_of(schema_version="1")])
def test_invalid_snapshot_is_rejected(data: bytes) -> None:
    with pytest.raises(UnreadableMessageError):
        decode_snapshot(data)
