"""Policies change by new versions only."""

from __future__ import annotations

import pytest

from controlplane.models import Policy, PolicyVersion
from controlplane.models.policy_version import AppendOnlyError
from controlplane.services.policies import StalePolicyError, draft, publish_version, roll_back
from controlplane.services.policy_problems import InvalidPolicyError
from gateway.bus import Bus

pytestmark = pytest.mark.django_db


def live_number(policy: Policy) -> int | None:
    policy.refresh_from_db()
    return policy.live_version.number if policy.live_version else None


def test_drafts_count_up_and_change_nothing_live(policy: Policy, bus: Bus) -> None:
    first = draft(policy, {}, author=None, message="a")
    second = draft(policy, {"ttft_slo_s": 2.0}, author=None)
    assert [first.number, second.number] == [1, 2]
    assert live_number(policy) is None


def test_a_stored_document_spells_out_its_defaults(policy: Policy, bus: Bus) -> None:
    version = draft(policy, {}, author=None)
    assert version.routing_document["placement"]["name"] == "least_cost"
    assert version.routing_document["ttft_slo_s"] == 5.0


def test_an_invalid_document_is_not_stored(policy: Policy, bus: Bus) -> None:
    with pytest.raises(InvalidPolicyError):
        draft(policy, {"ttft_slo_s": 0}, author=None)
    assert not PolicyVersion.objects.exists()


def test_publishing_makes_a_version_live_once(policy: Policy, bus: Bus) -> None:
    version = draft(policy, {}, author=None)
    publish_version(version, instead_of=None)
    assert live_number(policy) == 1
    assert version.published_at is not None


def test_the_second_of_two_publishers_is_refused(policy: Policy, bus: Bus) -> None:
    first, second = draft(policy, {}, author=None), draft(policy, {}, author=None)
    publish_version(first, instead_of=None)
    with pytest.raises(StalePolicyError):
        publish_version(second, instead_of=None)
    assert live_number(policy) == 1


def test_rolling_back_publishes_a_copy_as_the_newest_version(policy: Policy, bus: Bus) -> None:
    for slo_s, before in ((1.0, None), (2.0, 1)):
        publish_version(draft(policy, {"ttft_slo_s": slo_s}, author=None), instead_of=before)
    copy = roll_back(policy, 1, author=None)
    assert copy.number == live_number(policy) == 3
    assert copy.routing_document["ttft_slo_s"] == 1.0


def test_versions_can_be_neither_changed_nor_deleted(policy: Policy, bus: Bus) -> None:
    version = draft(policy, {}, author=None)
    version.message = "rewritten"
    with pytest.raises(AppendOnlyError):
        version.save()
    with pytest.raises(AppendOnlyError):
        version.delete()
