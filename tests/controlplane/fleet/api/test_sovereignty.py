"""Sovereignty rules over REST: read, replaced as a whole, and rejected with reasons."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.fleet import topology
from controlplane.fleet.models.region import Region
from controlplane.platform.actor import program
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.models.tenant import Tenant
from controlplane.platform.recorded_change import InUseError
from controlplane.publication.snapshot import build_snapshot
from routing.regions.sovereignty import SovereigntyDocument, SovereigntyRule
from tests.controlplane.platform.api.world import Api, World

pytestmark = pytest.mark.django_db
PATH = "sovereignty"
ACTOR = program("test")


@pytest.fixture(autouse=True)
def eu(world: World) -> Region:
    return topology.create_region("eu", "Europe", actor=ACTOR)


def rule(**changes: Any) -> dict[str, Any]:
    return {
        "name": "stays in the EU",
        "tenants": [],
        "from_regions": ["eu"],
        "to_regions": [],
        "allow": False,
        "note": "GDPR",
        **changes,
    }


def test_without_rules_everything_is_allowed(api: Api) -> None:
    assert api.get(PATH).json() == {"default": "allow", "rules": [], "revision": 1}
    assert build_snapshot(at=0.0).sovereignty == SovereigntyDocument()


def test_rules_are_audited_and_reach_the_gateways(api: Api) -> None:
    before = build_snapshot(at=0.0).version
    answer = api.change("PUT", PATH, {"default": "allow", "rules": [rule()], "why": "the contract"})
    assert (answer.status_code, answer.json()) == (200, {"default": "allow", "rules": [rule()], "revision": 2})
    snapshot = build_snapshot(at=0.0)
    assert snapshot.version == before + 1
    assert snapshot.sovereignty.rules == (
        SovereigntyRule("stays in the EU", from_regions=("eu",), allow=False, note="GDPR"),
    )
    event = AuditEvent.objects.get(verb="sovereignty.change")
    assert (event.object_kind, event.why, event.before["document"]["rules"]) == ("sovereignty", "the contract", [])


def test_response_can_be_sent_back(api: Api) -> None:
    api.change("PUT", PATH, {"rules": [rule()]})
    shown = api.get(PATH).json()
    assert api.change("PUT", PATH, shown).json() == shown


@pytest.mark.parametrize(
    ("rules", "path"),
    [
        ([rule(to_regions=["mars"])], "rules[0].to_regions"),
        ([rule(), rule(name="again")], "rules[1]"),
        ([rule(name="default")], "rules[0].name"),
        ([rule(note="two\nlines")], "rules[0].note"),
    ],
)
def test_invalid_document_is_rejected_with_the_path(api: Api, rules: list[dict[str, Any]], path: str) -> None:
    answer = api.change("PUT", PATH, {"rules": rules})
    assert answer.status_code == 400
    assert [error["path"] for error in answer.json()["errors"]] == [path]
    assert api.get(PATH).json()["rules"] == []


def test_rule_without_allow_is_rejected(api: Api) -> None:
    incomplete = rule()
    del incomplete["allow"]
    assert api.change("PUT", PATH, {"rules": [incomplete]}).status_code == 400


def test_concurrently_changed_rules_are_not_overwritten(api: Api) -> None:
    etag = api.get(PATH)["ETag"]
    api.change("PUT", PATH, {"rules": [rule()]})
    assert api.call("PUT", PATH, {"rules": []}, If_Match=etag).status_code == 412


@pytest.mark.parametrize("name", ["operator", "viewer"])
def test_only_admins_change_rules(world: World, name: str) -> None:
    other = Api(world, name)
    assert other.get(PATH).status_code == 200
    assert other.change("PUT", PATH, {"rules": [rule()]}).status_code == 403


def test_objects_named_by_rules_cannot_be_deleted(api: Api, eu: Region) -> None:
    tenant = Tenant.objects.create(slug="clinic", name="Clinic")
    api.change("PUT", PATH, {"rules": [rule(tenants=["clinic"])]})
    with pytest.raises(InUseError, match="stays in the EU"):
        topology.delete_region(eu, actor=ACTOR)
    with pytest.raises(InUseError, match="stays in the EU"):
        topology.delete_tenant(tenant, actor=ACTOR)
    api.change("PUT", PATH, {"rules": []})
    topology.delete_region(eu, actor=ACTOR)
