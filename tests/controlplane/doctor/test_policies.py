"""The doctor names live policies that require a newer program."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.utils import timezone

from controlplane.doctor import fleet
from controlplane.doctor.finding import State
from controlplane.doctor.installation import Installation
from controlplane.platform.actor import program
from controlplane.policies.models.policy import Policy
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.publish import draft, publish_version
from gateway.bus.bus import Bus

pytestmark = pytest.mark.django_db


def test_live_policies_of_a_newer_program_are_named(policy: Policy, bus: Bus, tmp_path: Path) -> None:
    here = Installation(tmp_path, "127.0.0.1", 1, "", timezone.now())
    actor = program("test")
    publish_version(draft(policy, {}, actor=actor), instead_of=None, actor=actor)
    assert [item.state for item in fleet.policies(here)] == [State.OK]
    newer = PolicyVersion.objects.create(policy=policy, number=2, routing_document={"schema_version": 3})
    Policy.objects.update(live_version=newer)
    (finding,) = fleet.policies(here)
    assert finding.state == State.PROBLEM
    assert "p v2 cannot be read: schema_version 3 is newer than 2" in finding.says
    assert "Roll the policy back" in finding.do
