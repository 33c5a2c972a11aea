"""Both documents of a policy version are validated, published, compared, and merged as one."""

from __future__ import annotations

import msgspec
import pytest

from controlplane.platform.actor import program
from controlplane.policies.document.form import form_groups, typed_document
from controlplane.policies.document.merge import changed_entries, merged
from controlplane.policies.document.problems import InvalidPolicyError, validated
from controlplane.policies.document.text import completed
from controlplane.policies.document.whole_policy import halves
from controlplane.policies.models.policy import Policy
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.publish import draft, publish_version, roll_back
from gateway.bus.bus import Bus
from planning.documents.automation_document import AutomationPolicy

ACTOR = program("tests")


def test_both_halves_are_stored_with_all_defaults() -> None:
    routing, automation = halves(validated({"automation": {"scaling": {"mode": "act", "max_engines": 12}}}))
    assert "automation" not in routing
    assert msgspec.convert(automation, AutomationPolicy).scaling.max_engines == 12
    assert automation["health"]["mode"] == "act"
    assert halves(validated({}))[1] == msgspec.to_builtins(AutomationPolicy())


def test_errors_of_both_halves_are_reported_together_with_their_paths() -> None:
    with pytest.raises(InvalidPolicyError) as caught:
        validated({"ttft_slo_s": -1, "automation": {"scaling": {"mode": "perhaps"}, "helath": {}}})
    assert [item.path for item in caught.value.field_problems] == [
        "ttft_slo_s",
        "automation.helath",
        "automation.scaling.mode",
    ]
    with pytest.raises(InvalidPolicyError) as caught:
        validated({"automation": {"scaling": {"min_engines": 9, "max_engines": 3}}})
    assert [item.path for item in caught.value.field_problems] == ["automation.scaling.min_engines"]


@pytest.mark.django_db
def test_publish_and_rollback_treat_both_halves_as_one(policy: Policy, bus: Bus) -> None:
    publish_version(draft(policy, {"ttft_slo_s": 2.0}, actor=ACTOR), instead_of=None, actor=ACTOR)
    scaled = draft(policy, {"automation": {"scaling": {"mode": "act"}}}, actor=ACTOR)
    publish_version(scaled, instead_of=1, actor=ACTOR)
    copy = roll_back(policy, 1, instead_of=2, actor=ACTOR)
    modes = {version.number: version.automation_document["scaling"]["mode"] for version in PolicyVersion.objects.all()}
    assert modes == {1: "advise", 2: "act", 3: "advise"}
    assert copy.document["ttft_slo_s"] == 2.0
    assert copy.document["automation"] == copy.automation_document


def test_changes_of_the_two_halves_merge() -> None:
    base = completed({})
    theirs = completed({"automation": {"health": {"stall_s": 20}}})
    mine = completed({"ttft_slo_s": 2, "automation": {"health": {"failures": 7}}})
    assert {".".join(entry.path) for entry in changed_entries(base, theirs, mine)} == {
        "automation.health.stall_s",
        "automation.health.failures",
        "ttft_slo_s",
    }
    both = merged(base, theirs, mine)
    assert both["automation"]["health"]["stall_s"] == 20
    assert both["automation"]["health"]["failures"] == 7


def test_form_has_a_section_for_each_automation_and_accepts_input() -> None:
    document = completed({})
    groups = {group.title: group for group in form_groups(document, document)}
    assert {"Engine health", "Rebalancing", "Scaling", "Prefill/decode ratio"} <= set(groups)
    fields = {field.path: field for field in groups["Scaling"].fields}
    assert set(fields["automation.scaling.mode"].choices) == {"off", "advise", "act"}
    assert "automation.schema_version" not in {field.path for group in groups.values() for field in group.fields}
    typed = typed_document(document, document, {"automation.scaling.max_engines": "12"})
    assert typed["automation"]["scaling"]["max_engines"] == 12
