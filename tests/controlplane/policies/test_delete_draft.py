"""Deleting drafts: who may, what blocks it, and what goes with them."""

from __future__ import annotations

from collections import Counter

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from controlplane.access.models.role_grant import RoleGrant
from controlplane.advice.proposals import TRIALS, attention_counts
from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import CONSOLE, Actor, person, program
from controlplane.platform.conflict import ConflictError
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.role import Role
from controlplane.platform.roles import NotAllowedError
from controlplane.policies.approvals import approve
from controlplane.policies.models.policy import Policy
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.publish import delete_draft, draft, publish_first_version
from controlplane.trials.canary.lifecycle import start_canary
from controlplane.trials.models.shadow import Shadow, ShadowState
from controlplane.trials.models.whatif import WhatIf
from controlplane.trials.trials_of_version import running_trials
from gateway.bus.bus import Bus

ACTOR = program("test")
pytestmark = pytest.mark.django_db


@pytest.fixture
def mine(policy: Policy, pool: Pool, bus: Bus) -> PolicyVersion:
    """Return draft v2 beside the live v1, with an approval and a failed what-if."""
    publish_first_version(policy, actor=ACTOR)
    version = draft(policy, {"placement": {"name": "round_robin"}}, actor=ACTOR, message="mine")
    user = User.objects.create(username="ben")
    RoleGrant.objects.create(user=user, role=Role.OPERATOR)
    approve(version, actor=person(user, via=CONSOLE))
    base = policy.versions.get(number=1)
    WhatIf.objects.create(pool=pool, recording_name="r", draft=version, base=base, conditions={})
    return version


def shadow_of(version: PolicyVersion, pool: Pool) -> Shadow:
    now, base = timezone.now(), version.policy.versions.get(number=1)
    return Shadow.objects.create(key="k", pool=pool, draft=version, base=base, created_at=now, until=now)


def test_draft_goes_with_its_trials_and_its_number_is_not_used_again(mine: PolicyVersion) -> None:
    delete_draft(mine, actor=ACTOR, why="a dead end")
    assert list(mine.policy.versions.values_list("number", flat=True)) == [1]
    assert not WhatIf.objects.exists()
    event = AuditEvent.objects.get(verb="policy.delete_draft")
    assert (event.why, event.before["number"]) == ("a dead end", 2)
    assert draft(mine.policy, {}, actor=ACTOR).number == 3


def test_live_version_stays(mine: PolicyVersion) -> None:
    with pytest.raises(ConflictError, match="was live"):
        delete_draft(mine.policy.versions.get(number=1), actor=ACTOR)


def test_running_shadow_blocks_and_an_ended_one_goes(mine: PolicyVersion, pool: Pool) -> None:
    shadow = shadow_of(mine, pool)
    with pytest.raises(ConflictError, match="Stop the shadow first"):
        delete_draft(mine, actor=ACTOR)
    assert PolicyVersion.objects.filter(pk=mine.pk).exists()
    Shadow.objects.filter(pk=shadow.pk).update(state=ShadowState.ENDED)
    delete_draft(mine, actor=ACTOR)
    assert not Shadow.objects.exists()


def test_canary_stays_because_it_served_requests(mine: PolicyVersion) -> None:
    start_canary(mine, steps=(0.25,), actor=ACTOR)
    with pytest.raises(ConflictError, match="served requests in a canary"):
        delete_draft(mine, actor=ACTOR)


def test_only_operators_of_all_pools_delete_drafts_of_others(mine: PolicyVersion) -> None:
    stranger: Actor = person(User.objects.create(username="eve"), via=CONSOLE)
    with pytest.raises(NotAllowedError):
        delete_draft(mine, actor=stranger)


def test_running_trials_state_what_is_on_trial(mine: PolicyVersion, pool: Pool) -> None:
    assert (running_trials(ACTOR), attention_counts(ACTOR)) == ([], Counter())
    start_canary(mine, steps=(0.25, 0.5), actor=ACTOR)
    shadow_of(mine, pool)
    canary, shadow = running_trials(ACTOR)
    assert (canary.words.replace("\u202f", " "), canary.step) == ("v2 on 25 % of sessions", "step 1 of 2")
    assert (shadow.words, shadow.pool) == ("v2 in shadow, beside v1", pool.slug)
    assert attention_counts(ACTOR) == Counter({TRIALS: 2})
    stranger = person(User.objects.create(username="eve"), via=CONSOLE)
    assert (running_trials(stranger), attention_counts(stranger)) == ([], Counter())


def test_api_deletes_a_draft_once(mine: PolicyVersion) -> None:
    client = Client()
    client.force_login(User.objects.create(username="root", is_superuser=True))
    address = f"/api/v1/policies/{mine.policy.slug}/versions"
    assert client.delete(f"{address}/1").status_code == 409
    assert client.delete(f"{address}/2").status_code == 204
    assert client.delete(f"{address}/2").status_code == 404
