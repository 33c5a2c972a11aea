"""The autopilot with real trials: shadow, canary, promotion, approvals, hours, freezes, and the holdback."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import User

from controlplane.access.models.role_grant import RoleGrant
from controlplane.advice import autopilot_job
from controlplane.advice.autopilot_job import follow_proposals
from controlplane.advice.models.advice_proposal import AdvicePrediction, AdviceProposal, ProposalState
from controlplane.automation.switches import freeze, unfreeze
from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import CONSOLE, person
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.models.job_run import JobRun
from controlplane.platform.role import Role
from controlplane.policies.approvals import approve
from controlplane.policies.models.policy import Policy
from controlplane.policies.publish import publish_version
from controlplane.trials.canary.end import abort
from controlplane.trials.models.canary import Canary
from controlplane.trials.models.holdback import Holdback, SliceState
from controlplane.trials.models.shadow import Shadow, ShadowState
from gateway.bus.bus import Bus
from planning.trials.arm_window import ArmWindow
from planning.trials.comparison import ArmSlice
from routing.trials.arms import CONTROL, LIVE
from tests.controlplane.advice.scene import ACTOR, ROUND_ROBIN, live_pool, proposed
from tests.controlplane.trials.canary.scene import ArmScene, arm_scene

pytestmark = pytest.mark.django_db


@pytest.fixture
def scene() -> Iterator[ArmScene]:
    with arm_scene(datetime.now(UTC)) as made:
        yield made


@pytest.fixture
def live(pool: Pool, bus: Bus) -> Pool:
    Pool.objects.filter(pk=pool.pk).update(advice="promote")
    return live_pool(pool)


def follow(scene: ArmScene) -> AdviceProposal:
    """Run one round, and return the newest proposal."""
    scene.now_s += 6
    JobRun.objects.filter(job=autopilot_job.JOB).update(lease_until=scene.clock() - timedelta(seconds=1))
    assert follow_proposals(scene.intake, clock=scene.clock) == 1
    return AdviceProposal.objects.select_related("shadow", "canary", "version", "pool__policy", "base").latest("pk")


def end_shadow(made: AdviceProposal) -> None:
    Shadow.objects.filter(pk=made.shadow_id).update(state=ShadowState.ENDED)


def hold(made: AdviceProposal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the canary to its last step, with evidence that suffices."""
    assert made.canary is not None
    Canary.objects.filter(pk=made.canary.pk).update(step=len(made.canary.steps) - 1)
    monkeypatch.setattr("controlplane.trials.canary.evidence.StepEvidence.missing", (), raising=False)
    enough = type("Enough", (), {"missing": ()})()
    monkeypatch.setattr(autopilot_job, "step_evidence", lambda *_: enough)
    monkeypatch.setattr("controlplane.trials.canary.evidence.step_evidence", lambda *_: enough)


def test_it_goes_from_shadow_to_canary_to_promotion(
    live: Pool, scene: ArmScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    proposed(live)
    made = follow(scene)
    assert made.shadow is not None
    assert "shadow compares" in follow(scene).waits
    end_shadow(made)
    made = follow(scene)
    assert (made.state, made.canary is not None) == (ProposalState.IN_CANARY, True)
    assert "step 1 of 3" in follow(scene).waits
    hold(made, monkeypatch)
    made = follow(scene)
    assert made.state == ProposalState.PROMOTED
    assert Policy.objects.get().live_version == made.version
    assert {item.objective for item in made.predictions.all()} >= {"on_time", "ttft_mean_s"}
    events = AuditEvent.objects.filter(actor_name="adviser")
    assert {"shadow.start", "canary.start", "canary.promote", "policy.publish", "advice.promote"} <= set(
        events.values_list("verb", flat=True)
    )
    assert all(f"evidence of proposal {made.pk}" in event.why for event in events)


def test_propose_starts_nothing(live: Pool, scene: ArmScene) -> None:
    Pool.objects.update(advice="propose")
    proposed(live)
    made = follow(scene)
    assert (made.shadow, made.canary, made.state) == (None, None, ProposalState.OPEN)
    assert "person" in made.waits


def test_four_eyes_stay_in_force(live: Pool, scene: ArmScene, monkeypatch: pytest.MonkeyPatch) -> None:
    Policy.objects.update(needs_approval=True)
    proposed(live)
    end_shadow(follow(scene))
    hold(follow(scene), monkeypatch)
    made = follow(scene)
    assert (made.state, "second person" in made.waits) == (ProposalState.IN_CANARY, True)
    second = User.objects.create(username="second")
    RoleGrant.objects.create(user=second, role=Role.OPERATOR)
    assert made.version is not None
    approve(made.version, actor=person(second, via=CONSOLE))
    assert follow(scene).state == ProposalState.PROMOTED


def test_hours_and_frozen_pools_are_waited_for(live: Pool, scene: ArmScene) -> None:
    hour = scene.clock().hour
    Pool.objects.update(advice_hours=f"{(hour + 3) % 24}-{(hour + 4) % 24}")
    proposed(live)
    assert "hours" in follow(scene).waits
    Pool.objects.update(advice_hours="")
    freeze(live, actor=ACTOR)
    assert "frozen" in follow(scene).waits
    unfreeze(live, actor=ACTOR)
    assert follow(scene).shadow is not None


def test_a_proposal_that_keeps_the_placement_waits_for_a_person(live: Pool, scene: ArmScene) -> None:
    live_pool(live, {"placement": {"name": "least_cost"}, "order": {"name": "fifo"}})
    proposed(live)
    assert "keeps the placement" in follow(scene).waits


def test_a_publish_by_hand_is_followed_and_its_predictions_are_kept(live: Pool, scene: ArmScene) -> None:
    made = proposed(live)
    assert made.version is not None
    publish_version(made.version, instead_of=made.base.number, actor=ACTOR)
    assert follow(scene).state == ProposalState.PROMOTED
    assert AdvicePrediction.objects.count() == 4


def test_another_version_supersedes_it(live: Pool, scene: ArmScene) -> None:
    proposed(live)
    live_pool(live, {**ROUND_ROBIN, "ttft_slo_s": 3.0})
    assert follow(scene).state == ProposalState.SUPERSEDED


def test_an_abort_by_a_person_rejects_and_a_guardrails_contradicts(live: Pool, scene: ArmScene) -> None:
    proposed(live)
    end_shadow(follow(scene))
    made = follow(scene)
    assert made.canary is not None
    abort(made.canary, actor=ACTOR, why="not today")
    made = follow(scene)
    assert (made.state, "not today" in made.reason) == (ProposalState.REJECTED, True)


def report(scene: ArmScene, version: int, policy_late: float, rule_late: float) -> None:
    """Report 400 requests of each side of the holdback, spread over slices."""
    for _ in range(20):
        sides = [ArmWindow(judged=20, on_time=round(20 * (1 - late)), ended=20) for late in (rule_late, policy_late)]
        scene.report(ArmSlice(sides[0], sides[1]), (CONTROL, version), (LIVE, version))


@pytest.mark.parametrize("mode", ["promote", "propose"])
def test_a_contradiction_by_the_holdback_rolls_back_only_in_the_mode_that_promotes(
    live: Pool, scene: ArmScene, mode: str
) -> None:
    Holdback.objects.create(pool=live, state=SliceState.SLICE, since=scene.clock(), trial_id="t", share=0.05)
    made = proposed(live)
    report(scene, made.base.number, policy_late=0.1, rule_late=0.3)
    assert made.version is not None
    publish_version(made.version, instead_of=made.base.number, actor=ACTOR)
    made = follow(scene)
    assert made.holdback["policy"] == 400
    Pool.objects.update(advice=mode)
    report(scene, made.version.number, policy_late=0.3, rule_late=0.3)
    made = follow(scene)
    assert made.state == ProposalState.CONTRADICTED
    assert "20.0 points" in made.reason
    now = Policy.objects.get().live_version
    assert now is not None
    if mode == "promote":
        assert (now.copies, now.author) == (made.base.number, None)
        assert AuditEvent.objects.filter(actor_name="adviser", verb="policy.roll_back").exists()
    else:
        assert now == made.version


def test_a_fall_back_to_the_simple_rule_contradicts(live: Pool, scene: ArmScene) -> None:
    made = proposed(live)
    assert made.version is not None
    publish_version(made.version, instead_of=made.base.number, actor=ACTOR)
    follow(scene)
    later = scene.clock() + timedelta(minutes=1)
    Holdback.objects.create(pool=live, state=SliceState.FALLBACK, since=later, trial_id="t", share=1.0)
    assert follow(scene).state == ProposalState.CONTRADICTED
    assert Policy.objects.get().live_version.copies == made.base.number


def test_what_cannot_start_is_stated_and_tried_again(live: Pool, scene: ArmScene) -> None:
    made = proposed(live)
    now = scene.clock()
    Shadow.objects.create(
        key="of-a-person", pool=live, draft=made.version, base=made.base, created_at=now,
        until=now + timedelta(hours=1),
    )  # fmt: skip
    assert "already has a shadow" in follow(scene).waits
    Shadow.objects.all().delete()
    assert follow(scene).shadow is not None
