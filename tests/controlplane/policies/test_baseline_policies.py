"""Baselines are for simulation and what-if. Live policies cannot name one; pools of a stored one still route."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.utils import timezone

from controlplane.automation.pool_policy import pool_policy
from controlplane.doctor import fleet as doctor
from controlplane.doctor.finding import State
from controlplane.doctor.installation import Installation
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.models.region import Region
from controlplane.platform.actor import program
from controlplane.platform.field_problems import InvalidFieldsError
from controlplane.policies.document.form import form_groups
from controlplane.policies.document.problems import InvalidPolicyError, problems_of, validated
from controlplane.policies.document.whole_policy import halves
from controlplane.policies.models.policy import Policy
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.publish import draft, publish_version, roll_back
from controlplane.publication.snapshot import build_snapshot
from controlplane.trials.canary.lifecycle import start_canary
from controlplane.trials.canary.pool_arms import canary_arm
from controlplane.trials.models.canary import Canary
from controlplane.trials.shadow.lifecycle import observe_pools, start_shadow
from routing.registry import BASELINES, PLACEMENTS
from tests.web.role_clients import client_of, make_person

ACTOR = program("test")
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("bus")]


def written(policy: Policy) -> PolicyVersion:
    """Return a version as stored by a program whose live table included the baselines."""
    routing, automation = halves(validated({"ttft_slo_s": 3.5, "order": {"name": "slack"}}))
    routing["placement"] = {"name": "preble", "params": {}}
    return PolicyVersion.objects.create(
        policy=policy, number=1, routing_document=routing, automation_document=automation
    )


@pytest.fixture
def live(pool: Pool) -> PolicyVersion:
    """Return such a version after it went live in the pool."""
    version = written(pool.policy)
    Policy.objects.filter(pk=pool.policy_id).update(live_version=version)
    pool.policy.refresh_from_db()
    return version


@pytest.mark.parametrize("name", sorted(BASELINES))
def test_live_policy_cannot_be_written_with_a_baseline(name: str, policy: Policy) -> None:
    document = {"placement": {"name": name}}
    (problem,) = problems_of(document)
    assert problem.path == "placement.name"
    assert problem.message.startswith(f"{name!r} is a baseline for simulation and what-if only; use ")
    assert all(f" {live}" in problem.message for live in PLACEMENTS)
    with pytest.raises(InvalidPolicyError, match="baseline for simulation"):
        draft(policy, document, actor=ACTOR)


def test_form_offers_no_baseline() -> None:
    (choice,) = next(group.fields for group in form_groups({}, {}) if group.path == "placement")
    assert choice.choices == tuple(PLACEMENTS)


def test_stored_baseline_policy_cannot_be_published(pool: Pool) -> None:
    old = written(pool.policy)
    for live_again in (publish_version, lambda item, **known: roll_back(item.policy, item.number, **known)):
        with pytest.raises(InvalidPolicyError, match="baseline for simulation"):
            live_again(old, instead_of=None, actor=ACTOR)
    publish_version(draft(pool.policy, {}, actor=ACTOR), instead_of=None, actor=ACTOR)
    pool.refresh_from_db()
    with pytest.raises(InvalidPolicyError, match="baseline for simulation"):
        start_canary(old, actor=ACTOR)
    with pytest.raises(InvalidFieldsError, match="baseline for simulation"):
        start_shadow(pool, old, actor=ACTOR)


def test_pool_of_a_live_baseline_uses_the_default_placement_and_blocks_no_other(
    pool: Pool, live: PolicyVersion, region: Region, caplog: pytest.LogCaptureFixture
) -> None:
    other = Policy.objects.create(slug="other", name="Other")
    publish_version(draft(other, {"placement": {"name": "dual_map"}}, actor=ACTOR), instead_of=None, actor=ACTOR)
    Pool.objects.create(slug="second", name="Second", region=region, served_model="n", policy=other)
    entries = {entry.pool_id: entry for entry in build_snapshot(at=0.0).pools}
    assert entries["second"].policy.placement.name == "dual_map"
    followed = entries[pool.slug]
    assert (followed.policy_version, followed.policy.placement.name) == (live.number, "least_cost")
    assert (followed.policy.order.name, followed.policy.ttft_slo_s) == ("slack", 3.5)
    assert f"{live} is not followed in full by pool {pool.slug}: Placement 'preble' is a baseline" in caplog.text
    assert pool_policy(Pool.objects.get(slug=pool.slug)).rings == (0, 100)


def test_doctor_and_pages_report_the_baseline(pool: Pool, live: PolicyVersion, tmp_path: Path) -> None:
    (finding,) = doctor.policies(Installation(tmp_path, "127.0.0.1", 1, "", timezone.now()))
    assert finding.state == State.WARNING
    assert "requests use 'least_cost'" in finding.says
    client = client_of(make_person("operator", pool))
    for page in ("/policies", f"/policies/{pool.policy.slug}"):
        text = client.get(page).content.decode()
        assert "Placement &#x27;preble&#x27; is a baseline for simulation and what-if only" in text
    publish_version(draft(pool.policy, {}, actor=ACTOR), instead_of=live.number, actor=ACTOR)
    assert "baseline" not in client.get("/policies").content.decode()


def test_canary_with_a_baseline_uses_the_default_placement(pool: Pool, live: PolicyVersion) -> None:
    canary = Canary(key="k", policy=pool.policy, version=live, against=live, steps=[0.1], step_at=timezone.now())
    assert canary_arm(canary).placement.name == "least_cost"


def test_shadow_of_an_observing_pool_uses_the_replacement_placement(pool: Pool, live: PolicyVersion) -> None:
    Pool.objects.update(mode="observe")
    assert observe_pools() == 1
    (entry,) = build_snapshot(at=0.0).pools
    assert entry.shadow is not None
    assert entry.shadow.policy.placement.name == "least_cost"
