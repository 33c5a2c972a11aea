"""Documents of schema 1 name rules and settings that live pools no longer have; they are read, and say what applies."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
from django.apps import apps

from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import program
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.policies.document.problems import InvalidPolicyError, validated
from controlplane.policies.document.schema import MapSchema, ObjectSchema, SettingSchema, policy_schema
from controlplane.policies.models.policy import Policy
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.publish import draft, publish_version, roll_back
from controlplane.policies.upgrade import automation_of
from controlplane.publication.snapshot import build_snapshot
from planning.documents.automation_document import REMOVED, AutomationPolicy
from routing.registry import NEAREST
from tests.web.role_clients import client_of, make_person

ACTOR = program("test")
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("bus")]


def stored(policy: Policy, **routing: Any) -> PolicyVersion:
    """Return a draft as an earlier program stored it."""
    automation = {"schema_version": 1, "health": {"flaps": 5, "failures": 7}, "ratio": {"max_step": 1}}
    document = {"schema_version": 1, "min_retries": 3, "fairness": {"default_weight": 2.0}, **routing}
    return PolicyVersion.objects.create(
        policy=policy, number=1, routing_document=document, automation_document=automation
    )


@pytest.mark.parametrize("name", sorted(NEAREST))
def test_retired_rule_is_replaced_by_the_nearest_live_one(name: str, policy: Policy, pool: Pool) -> None:
    params = {"key_blocks": 3} if name == "cache_affinity" else {}
    version = stored(policy, placement={"name": name, "params": params})
    publish_version(version, instead_of=None, actor=ACTOR)
    (entry,) = build_snapshot(at=0.0).pools
    assert entry.policy.placement.name == NEAREST[name]
    assert entry.policy.placement.params == params
    text = client_of(make_person("operator", pool)).get(f"/policies/{policy.slug}").content.decode()
    assert f"requests use &#x27;{NEAREST[name]}&#x27;, the nearest live placement." in text


def test_sticky_sessions_are_advised_by_gated(policy: Policy, pool: Pool) -> None:
    publish_version(stored(policy, advisories="sticky"), instead_of=None, actor=ACTOR)
    assert build_snapshot(at=0.0).pools[0].policy.advisories == "gated"
    copy = roll_back(policy, 1, instead_of=1, actor=ACTOR)
    assert copy.routing_document["advisories"] == "gated"
    assert "advisories 'sticky' is for simulation only; 'gated' applies." in copy.message


def test_removed_settings_are_dropped_and_the_message_says_which_value_applies(policy: Policy) -> None:
    old = stored(policy)
    assert automation_of(old).health.failures == 7
    assert automation_of(old).health.flaps == 3
    version = draft(policy, old.document, actor=ACTOR, message="From a file")
    assert "flaps" not in version.automation_document["health"]
    assert "fairness.default_weight 2.0 is no longer a setting; 1.0 applies." in version.message
    assert "automation.health.flaps 5 is no longer a setting; 3 applies." in version.message
    assert "max_step" not in version.message, "it had the value that applies"
    assert "min_retries" not in version.message


def test_fixed_parameter_of_a_rule_is_dropped(policy: Policy, pool: Pool) -> None:
    old = stored(policy, placement={"name": "dual_map", "params": {"d": 3, "virtual_nodes": 100, "key_blocks": 4}})
    publish_version(old, instead_of=None, actor=ACTOR)
    assert build_snapshot(at=0.0).pools[0].policy.placement.params == {"key_blocks": 4}
    copy = roll_back(policy, 1, instead_of=1, actor=ACTOR)
    assert copy.routing_document["placement"]["params"] == {"key_blocks": 4, "rebalance": True}
    assert "placement.params.d 3 is no longer a setting" in copy.message


def test_current_document_is_rejected_with_what_to_do(policy: Policy) -> None:
    document = {"placement": {"name": "dual_map", "params": {"d": 3}}, "automation": {"scaling": {"hysteresis": 0.3}}}
    with pytest.raises(InvalidPolicyError) as caught:
        validated(document)
    assert caught.value.problems == (
        "$.placement.params.d: is not a setting; 2 always applies. Remove it",
        "$.automation.scaling.hysteresis: is not a setting; 0.2 always applies. Remove it",
    )


def test_upgrade_is_in_the_audit_log(policy: Policy) -> None:
    stored(policy, placement={"name": "random"}, advisories="sticky")
    Policy.objects.create(slug="other", name="Other")
    import_module("controlplane.migrations.0004_policies_of_schema_2").record_replacements(apps, None)
    event = AuditEvent.objects.get(verb="policy.upgrade")
    assert event.object_id == policy.slug
    assert event.before == {"number": 1, "placement": "random", "advisories": "sticky"}
    assert event.after == {"number": 1, "placement": "round_robin", "advisories": "gated"}


def test_constants_have_the_values_of_their_removed_settings() -> None:
    automation = AutomationPolicy()
    for path, value in REMOVED.items():
        half, name = path.split(".")
        assert getattr(getattr(automation, half), name) == value


def test_live_policy_has_few_settings() -> None:
    def count(node: Any) -> int:
        if isinstance(node, SettingSchema):
            return 1
        if isinstance(node, MapSchema):
            return count(node.entry)
        if isinstance(node, ObjectSchema):
            return sum(count(member) for member in node.members.values())
        return 1 + sum(count(rule) for rule in node.rules.values())

    # 100, what SkyWalker and LBGR need to run as published (by, pending, latency), and engine_prefetch.
    assert count(policy_schema()) <= 104
