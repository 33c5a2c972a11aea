"""Policies change only by new versions.

Valid settings that deserve a warning.
"""

from __future__ import annotations

import pytest

from controlplane.platform.actor import program
from controlplane.platform.models.append_only import AppendOnlyError
from controlplane.policies.document.problems import InvalidPolicyError
from controlplane.policies.document.text import completed
from controlplane.policies.models.policy import Policy
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.notes import notes_on, vain_settings
from controlplane.policies.publish import StalePolicyError, draft, publish_version, roll_back
from gateway.bus.bus import Bus

ACTOR = program("test")
pytestmark = pytest.mark.django_db


def live_number(policy: Policy) -> int | None:
    policy.refresh_from_db()
    return policy.live_version.number if policy.live_version else None


def test_drafts_are_numbered_and_change_nothing_live(policy: Policy, bus: Bus) -> None:
    first = draft(policy, {}, actor=ACTOR, message="a")
    second = draft(policy, {"ttft_slo_s": 2.0}, actor=ACTOR)
    assert [first.number, second.number] == [1, 2]
    assert live_number(policy) is None


def test_stored_document_lists_its_defaults(policy: Policy, bus: Bus) -> None:
    version = draft(policy, {}, actor=ACTOR)
    assert version.routing_document["placement"]["name"] == "least_cost"
    assert version.routing_document["ttft_slo_s"] == 5.0


def test_invalid_document_is_not_stored(policy: Policy, bus: Bus) -> None:
    with pytest.raises(InvalidPolicyError):
        draft(policy, {"ttft_slo_s": 0}, actor=ACTOR)
    assert not PolicyVersion.objects.exists()


def test_publishing_makes_a_version_live_once(policy: Policy, bus: Bus) -> None:
    version = draft(policy, {}, actor=ACTOR)
    publish_version(version, instead_of=None, actor=ACTOR)
    assert live_number(policy) == 1
    assert version.published_at is not None


def test_second_of_two_publishers_is_rejected(policy: Policy, bus: Bus) -> None:
    first, second = draft(policy, {}, actor=ACTOR), draft(policy, {}, actor=ACTOR)
    publish_version(first, instead_of=None, actor=ACTOR)
    with pytest.raises(StalePolicyError) as caught:
        publish_version(second, instead_of=None, actor=ACTOR)
    assert caught.value.live == first
    assert live_number(policy) == 1


def test_rollback_publishes_a_copy_as_the_newest_version(policy: Policy, bus: Bus) -> None:
    for slo_s, before in ((1.0, None), (2.0, 1)):
        publish_version(draft(policy, {"ttft_slo_s": slo_s}, actor=ACTOR), instead_of=before, actor=ACTOR)
    copy = roll_back(policy, 1, instead_of=2, actor=ACTOR)
    assert copy.number == live_number(policy) == 3
    assert copy.routing_document["ttft_slo_s"] == 1.0


def test_versions_cannot_be_changed_or_deleted(policy: Policy, bus: Bus) -> None:
    version = draft(policy, {}, actor=ACTOR)
    version.message = "rewritten"
    with pytest.raises(AppendOnlyError):
        version.save()
    with pytest.raises(AppendOnlyError):
        version.delete()


def test_defaults_have_no_notes() -> None:
    assert notes_on(completed({})) == ()


def test_setting_outside_its_usual_range_has_a_note_with_its_path() -> None:
    document = completed({"placement": {"name": "least_cost", "params": {"beta": 100}}, "max_wait_s": 1})
    assert [(note.path, note.message) for note in notes_on(document)] == [
        ("placement.params.beta", "100 is outside the usual 4 to 12 s per s"),
        ("max_wait_s", "1 is outside the usual 5 to 300 s"),
    ]


def test_settings_without_effect_in_any_live_pool_have_a_note() -> None:
    document = {"placement": {"name": "mooncake"}}
    assert [note.path for note in vain_settings(document)] == ["placement"]
    assert not list(vain_settings(completed({})))
