"""Export, diff, and apply over the API: three-way comparison, atomicity, approvals, pruning."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.fleet.models.engine import DesiredState, Engine
from controlplane.fleet.models.pool import Pool
from controlplane.manifests.kinds import KINDS
from controlplane.manifests.models.applied_manifest import AppliedManifest
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.policies.models.policy import Policy
from tests.controlplane.platform.api.world import Api, World

pytestmark = pytest.mark.django_db


def of(kind: str, name: str | dict[str, str], /, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name} if isinstance(name, str) else name
    return {"apiVersion": "headway/v1", "kind": kind, "metadata": metadata, "spec": spec}


def pool(name: str = "pool-a", /, **spec: Any) -> dict[str, Any]:
    return of("Pool", name, **spec)


def apply(api: Api, *objects: dict[str, Any], status: int = 200, verb: str = "apply", **options: Any) -> Any:
    answer = api.post(f"manifests/{verb}", {"objects": list(objects), **options})
    assert answer.status_code == status, answer.content
    return answer.json()


def conflicts(answer: Any) -> list[dict[str, Any]]:
    """Return the fields in conflict."""
    return [item for change in answer["changes"] for item in change["changed"] if item["in_conflict"]]


def differences(change: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Return path, old, and new value of the changed fields."""
    return [(item["path"], item["before"], item["after"]) for item in change["changed"]]


@pytest.mark.parametrize("defaults", ["", "?defaults=true"])
def test_applying_an_export_changes_nothing(world: World, defaults: str) -> None:
    api = Api(world, "admin_key")
    objects = api.get(f"manifests{defaults}").json()["objects"]
    assert {item["kind"] for item in objects} == {kind.name for kind in KINDS}
    events = AuditEvent.objects.count()
    outcome = apply(api, *objects)
    assert outcome == {"applied": True, "changes": [], "unchanged": len(objects)}
    assert AuditEvent.objects.count() == events


def test_a_field_in_the_files_wins_and_the_audit_names_file_and_key(world: World) -> None:
    api = Api(world, "admin_key")
    sourced = {**pool(weight=50), "source": "fleet.yaml:7"}
    difference = apply(api, sourced, verb="diff")
    assert Pool.objects.get(slug="pool-a").weight == 100
    outcome = apply(api, sourced, why="less traffic")
    assert outcome["changes"] == difference["changes"]
    (change,) = outcome["changes"]
    assert differences(change) == [("weight", 100, 50)]
    assert Pool.objects.get(slug="pool-a").weight == 50
    event = AuditEvent.objects.latest("pk")
    assert (event.actor_name, event.why) == ("key admin_key", "less traffic (Applied by apply from fleet.yaml:7)")
    assert apply(api, sourced)["changes"] == []


def test_a_field_that_left_the_files_gets_its_default_and_others_stay(world: World) -> None:
    api = Api(world, "admin_key")
    apply(api, pool(weight=50, isolated=True))
    Api(world).change("PATCH", "pools/pool-a", {"max_prompt_tokens": 900})
    apply(api, pool())
    stored = Pool.objects.get(slug="pool-a")
    # As in a PUT, an omitted `isolated` is unchanged.
    assert (stored.weight, stored.max_prompt_tokens, stored.isolated) == (100, 900, True)


def test_a_persons_change_of_a_managed_field_is_a_conflict_until_forced(world: World) -> None:
    api, admin = Api(world, "admin_key"), Api(world)
    apply(api, pool(weight=50))
    admin.change("PATCH", "pools/pool-a", {"weight": 60, "name": "Chat"})
    problem = apply(api, pool(weight=70), of("Tenant", "new", name="New"), status=409)
    (conflict,) = conflicts(problem)
    assert (conflict["path"], conflict["applied"], conflict["before"], conflict["after"]) == ("weight", 50, 60, 70)
    assert (conflict["by"], problem["errors"][0]["path"]) == ("admin", "objects[0].spec.weight")
    assert "tenants/new" not in api.get("tenants").content.decode()
    assert api.get("tenants/new").status_code == 404
    assert conflicts(apply(api, pool(weight=50), verb="diff"))[0]["after"] == 50
    assert apply(api, pool(weight=60))["changes"] == []
    admin.change("PATCH", "pools/pool-a", {"weight": 80})
    apply(api, pool(weight=70), force=True)
    assert Pool.objects.get(slug="pool-a").weight == 70
    assert apply(api, pool(weight=70))["changes"] == []


def test_a_persons_value_stays_when_the_field_leaves_the_files(world: World) -> None:
    api = Api(world, "admin_key")
    apply(api, pool(weight=50))
    Api(world).change("PATCH", "pools/pool-a", {"weight": 60})
    assert apply(api, pool())["changes"] == []
    assert Pool.objects.get(slug="pool-a").weight == 60
    apply(api, pool(weight=70))
    assert Pool.objects.get(slug="pool-a").weight == 70


def test_two_managers_conflict_on_a_field_and_share_an_object(world: World) -> None:
    api = Api(world, "admin_key")
    apply(api, pool(weight=50), manager="one")
    apply(api, pool(max_prompt_tokens=900), manager="two")
    assert conflicts(apply(api, pool(weight=60), manager="two", status=409))[0]["by"] == "one"
    apply(api, pool(weight=60), manager="two", force=True)
    assert apply(api, pool(), manager="one")["changes"] == []
    assert Pool.objects.get(slug="pool-a").weight == 60


def test_objects_that_refer_to_each_other_are_created_in_any_order(world: World) -> None:
    api = Api(world, "admin_key")
    engine = of("Engine", {"pool": "chat", "name": "e1"}, url="http://10.0.7.1:8000")
    chat = pool("chat", name="Chat", region="there", served_model="m", policy="chat")
    outcome = apply(api, engine, chat, of("Region", "there", name="There"), of("Policy", "chat", name="Chat"))
    assert [(item["kind"], item["action"]) for item in outcome["changes"]] == [
        (kind, "create") for kind in ("Region", "Policy", "Pool", "Engine")
    ]
    assert Engine.objects.get(name="e1").pool.policy.live_version.number == 1


def test_one_bad_object_of_many_applies_none_and_all_problems_are_listed(world: World) -> None:
    api = Api(world, "admin_key")
    bad = pool("pool-b", weight=5000, wieght=3)
    problem = apply(api, pool(weight=50), bad, of("Tenant", "acme", name=""), status=400)
    assert [item["path"] for item in problem["errors"]] == [
        "objects[1].spec.weight",
        "objects[1].spec.wieght",
        "objects[2].spec.name",
    ]
    late = of("Engine", {"pool": "pool-a", "name": "e-a"}, url="http://169.254.169.254:80")
    problem = apply(api, pool(weight=50), late, pool("no", name="No", region="gone"), status=400)
    assert {item["path"] for item in problem["errors"]} == {"objects[2].spec.served_model", "objects[2].spec.policy"}
    assert [item["path"] for item in apply(api, pool(weight=50), late, status=400)["errors"]] == ["objects[1].spec.url"]
    assert Pool.objects.get(slug="pool-a").weight == 100
    assert not AppliedManifest.objects.exists()


def test_unknown_kinds_references_and_repeated_objects_are_rejected(world: World) -> None:
    api = Api(world, "admin_key")
    assert "known are Region" in apply(api, of("Pod", "a"), status=400)["errors"][0]["message"]
    (error,) = apply(api, pool(region="mars"), status=400)["errors"]
    assert error == {"path": "objects[0].spec.region", "message": "There is no region 'mars'."}
    (error,) = apply(api, pool(), pool(), status=400)["errors"]
    assert error["path"] == "objects[1].metadata"
    (error,) = apply(api, of("Pool", {}), status=400)["errors"]
    assert error["path"] == "objects[0].metadata.name"
    assert apply(api, {**pool(), "apiVersion": "v2"}, status=400)["errors"]
    assert apply(api, prune=True, release=True, status=400)["errors"]


def test_keys_need_the_roles_that_their_changes_need(world: World) -> None:
    operator = Api(world, "operator_a_key")
    assert "Pool pool-a: This requires the role admin" in apply(operator, pool(weight=5), status=403)["detail"]
    apply(operator, of("Engine", {"pool": "pool-a", "name": "e-a"}, speed=2.0))
    assert Engine.objects.get(name="e-a").speed == 2.0
    hidden = of("Engine", {"pool": "pool-b", "name": "e-b"}, speed=2.0)
    assert apply(operator, hidden, status=400)["errors"][0]["path"] == "objects[0].spec.url"
    kinds = {item["kind"] for item in operator.get("manifests").json()["objects"]}
    assert kinds == {"Region", "Policy", "Pool", "Engine"}


def test_pruning_drains_engines_first_and_keeps_what_other_hands_made(world: World) -> None:
    api = Api(world, "admin_key")
    chat = pool("chat", name="Chat", region="here", served_model="m", policy="policy-a")
    engine = of("Engine", {"pool": "chat", "name": "e1"}, url="http://10.0.7.1:8000")
    apply(api, chat, engine)
    (orphan, _) = apply(api)["changes"]
    assert (orphan["kind"], orphan["action"]) == ("Engine", "orphan")
    first = apply(api, prune=True)["changes"]
    assert "drains" in first[0]["remark"]
    assert "is used by engine chat/e1" in first[1]["remark"]
    assert Engine.objects.get(name="e1").desired_state == DesiredState.DRAINING
    Engine.objects.filter(name="e1").delete()
    apply(api, prune=True)
    assert not Pool.objects.filter(slug="chat").exists()
    assert Pool.objects.count() == 2
    assert not AppliedManifest.objects.exists()


def test_released_objects_stay_without_management(world: World) -> None:
    api = Api(world, "admin_key")
    apply(api, pool(weight=50))
    (change,) = apply(api, release=True)["changes"]
    assert (change["action"], Pool.objects.get(slug="pool-a").weight) == ("release", 50)
    assert apply(api)["changes"] == []


def test_an_object_that_a_person_renamed_is_a_conflict_and_not_a_second_one(world: World) -> None:
    api = Api(world, "admin_key")
    engine = of("Engine", {"pool": "pool-a", "name": "e-a"}, speed=2.0)
    apply(api, engine)
    Api(world).change("PATCH", "engines/e-a", {"name": "other"})
    (conflict,) = conflicts(apply(api, engine, status=409))
    assert (conflict["path"], conflict["before"], conflict["after"]) == ("name", "other", "e-a")
    apply(api, engine, force=True)
    assert Engine.objects.get(engine_id="e-a").name == "e-a"


def test_files_change_keys_and_neither_create_nor_reveal_them(world: World) -> None:
    api = Api(world, "admin_key")
    exported = api.get("manifests?kind=ApiKey").content.decode()
    assert not any(
        text in exported or key.sha256 in exported
        for text, key in zip(world.texts.values(), world.keys.values(), strict=True)
    )
    key = {"tenant": "acme", "name": "traffic_key"}
    apply(api, of("ApiKey", key, rate_per_min=60, expires_at="2030-01-01T00:00:00Z"))
    assert apply(api, of("ApiKey", key, rate_per_min=60, expires_at="2030-01-01T00:00:00Z"))["changes"] == []
    world.keys["traffic_key"].refresh_from_db()
    assert world.keys["traffic_key"].rate_per_min == 60
    (error,) = apply(api, of("ApiKey", {"tenant": "acme", "name": "new"}), status=400)["errors"]
    assert "create_api_key --tenant acme --name 'new'" in error["message"]


def policy(document: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return of("Policy", "policy-a", document=document, **spec)


def live(slug: str = "policy-a") -> Any:
    return Policy.objects.get(slug=slug).live_version


def test_a_policys_document_is_published_and_compared_by_setting(world: World) -> None:
    api = Api(world, "admin_key")
    document = {"ttft_slo_s": 3.0, "slo_classes": {"gold.eu": {"ttft_slo_s": 1}}}
    apply(api, policy(document))
    assert live().routing_document["ttft_slo_s"] == 3.0
    number = live().number
    assert apply(api, policy(document))["changes"] == []
    assert live().number == number
    apply(api, policy({"tpot_slo_s": 0.2}))
    stored = live().routing_document
    assert (stored["ttft_slo_s"], stored["tpot_slo_s"], stored["slo_classes"]) == (5.0, 0.2, {})
    (error,) = apply(api, policy({"ttft_slo": 1}), status=400)["errors"]
    assert error["path"] == "objects[0].spec.document.ttft_slo"
    assert apply(api, policy({"schema_version": 1}), status=400)["errors"]


def test_another_rule_starts_with_the_parameters_of_the_files(world: World) -> None:
    api = Api(world, "admin_key")
    apply(api, policy({"placement": {"name": "least_cost", "params": {"beta": 4.0}}}))
    apply(api, policy({"placement": {"name": "round_robin"}}))
    assert live().routing_document["placement"] == {"name": "round_robin", "params": {}}
    (exported,) = [
        one for one in api.get("manifests?kind=Policy").json()["objects"] if one["metadata"]["name"] == "policy-a"
    ]
    assert exported["spec"]["document"] == {"placement": {"name": "round_robin"}}
    apply(api, policy({}))
    assert live().routing_document["placement"] == {"name": "least_cost", "params": {"beta": 8.0}}


def test_a_version_published_in_the_console_is_a_conflict(world: World) -> None:
    api, admin = Api(world, "admin_key"), Api(world)
    apply(api, policy({"ttft_slo_s": 3.0}))
    number = admin.post("policies/policy-a/versions", {"document": {"ttft_slo_s": 4.0}}).json()["number"]
    admin.post(f"policies/policy-a/versions/{number}/publish", {"instead_of": live().number})
    (conflict,) = conflicts(apply(api, policy({"ttft_slo_s": 3.0}), status=409))
    assert (conflict["path"], conflict["before"], conflict["by"]) == ("document.ttft_slo_s", 4.0, "admin")


def test_a_policy_that_requires_approval_is_drafted_once_and_goes_live_after_it(world: World) -> None:
    api = Api(world, "admin_key")
    apply(api, policy({"ttft_slo_s": 3.0}))
    apply(api, policy({"ttft_slo_s": 3.0}, needs_approval=True))
    before, versions = live(), Policy.objects.get(slug="policy-a").versions
    for _ in range(2):
        (change,) = apply(api, policy({"ttft_slo_s": 4.0}, needs_approval=True))["changes"]
        assert "waits for the approval" in change["remark"]
        assert differences(change) == [("document.ttft_slo_s", 3.0, 4.0)]
    assert live() == before
    draft = versions.latest("number")
    assert Api(world, "operator").post(f"policies/policy-a/versions/{draft.number}/approve", {}).status_code == 200
    apply(api, policy({"ttft_slo_s": 4.0}, needs_approval=True))
    assert live() == draft
    assert apply(api, policy({"ttft_slo_s": 4.0}, needs_approval=True))["changes"] == []


def test_a_draft_of_settings_that_were_never_applied_is_no_conflict(world: World) -> None:
    api = Api(world, "admin_key")
    Api(world).change("PATCH", "policies/policy-a", {"needs_approval": True})
    for _ in range(2):
        (change,) = apply(api, policy({"ttft_slo_s": 4.0}))["changes"]
        assert "waits for the approval" in change["remark"]


def test_a_setting_that_leaves_the_files_waits_for_the_approval_of_one_draft(world: World) -> None:
    api = Api(world, "admin_key")
    apply(api, policy({"ttft_slo_s": 3.0, "tpot_slo_s": 0.2}))
    Api(world).change("PATCH", "policies/policy-a", {"needs_approval": True})
    for _ in range(2):
        (change,) = apply(api, policy({"tpot_slo_s": 0.2}))["changes"]
        assert differences(change) == [("document.ttft_slo_s", 3.0, 5.0)]
    drafts = Policy.objects.get(slug="policy-a").versions.filter(number__gt=live().number)
    assert drafts.count() == 1
    Api(world, "operator").post(f"policies/policy-a/versions/{drafts.get().number}/approve", {})
    assert "is live" in apply(api, policy({"tpot_slo_s": 0.2}))["changes"][0]["remark"]
    assert apply(api, policy({"tpot_slo_s": 0.2}))["changes"] == []
