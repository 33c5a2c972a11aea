"""Canaries are started, stepped, promoted, and aborted, each with its role, audit event, and snapshot."""

from __future__ import annotations

import pytest

from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import Actor
from controlplane.platform.field_problems import InvalidFieldsError
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.revisions import StaleRevisionError
from controlplane.platform.role import Role
from controlplane.platform.roles import NotAllowedError
from controlplane.policies.document.problems import problems_of
from controlplane.policies.models.policy import Policy
from controlplane.publication.snapshot import build_snapshot
from controlplane.trials.canary.end import CanaryOverError, abort
from controlplane.trials.canary.evidence import Evidence
from controlplane.trials.canary.lifecycle import promote, start_canary, take_step, untried, visible_canaries
from controlplane.trials.models.canary import Canary
from gateway.bus.bus import Bus
from gateway.contracts.snapshot import decode_snapshot, encode_snapshot
from routing.trials.arms import ArmEntry
from tests.controlplane.trials.canary.scene import ACTOR, live_version, version

pytestmark = pytest.mark.django_db


def arms() -> tuple[ArmEntry, ...]:
    """Return the arms as a gateway reads them."""
    return decode_snapshot(encode_snapshot(build_snapshot(0.0))).pools[0].arms


@pytest.fixture
def canary(pool: Pool, policy: Policy, bus: Bus) -> Canary:
    live_version(policy)
    return start_canary(version(policy, "round_robin"), steps=(0.1, 0.5), actor=ACTOR, why="try it")


def test_snapshot_has_the_share_of_each_step(canary: Canary) -> None:
    (arm,) = arms()
    assert (arm.arm, arm.trial_id, arm.share, arm.policy_version, arm.placement.name) == (
        "canary", canary.key, 0.1, 2, "round_robin",
    )  # fmt: skip
    take_step(canary, expected=1, actor=ACTOR, evidence=Evidence.JUDGED)
    assert arms()[0].share == 0.5
    assert arms()[0].trial_id == canary.key
    with pytest.raises(CanaryOverError, match="last step"):
        take_step(canary, actor=ACTOR)


def test_abort_restores_only_the_live_version(canary: Canary, policy: Policy) -> None:
    abort(canary, expected=1, actor=ACTOR, why="late")
    assert arms() == ()
    policy.refresh_from_db()
    assert policy.live_version is not None
    assert policy.live_version.number == 1
    verbs = list(AuditEvent.objects.filter(object_kind="canary").order_by("pk").values_list("verb", "why"))
    assert verbs == [("canary.start", "try it"), ("canary.abort", "late")]
    with pytest.raises(CanaryOverError, match="aborted"):
        promote(canary, actor=ACTOR)


def test_promotion_publishes_the_version_of_the_canary(canary: Canary, policy: Policy) -> None:
    assert promote(canary, expected=1, actor=ACTOR, evidence=Evidence.JUDGED).state == "promoted"
    policy.refresh_from_db()
    assert policy.live_version == canary.version
    assert arms() == ()


def test_newly_published_version_ends_the_canary(canary: Canary, policy: Policy) -> None:
    live_version(policy, "least_loaded")
    canary.refresh_from_db()
    assert (canary.state, canary.reason) == ("ended", "Version 3 went live")
    assert arms() == ()


def test_one_canary_runs_at_a_time_and_stale_actions_change_nothing(canary: Canary, policy: Policy) -> None:
    with pytest.raises(CanaryOverError, match="already has a running canary"):
        start_canary(version(policy, "least_loaded"), actor=ACTOR)
    with pytest.raises(StaleRevisionError):
        take_step(canary, expected=9, actor=ACTOR)
    canary.refresh_from_db()
    assert (canary.step, canary.state) == (0, "running")


def test_canary_that_could_show_nothing_is_rejected(pool: Pool, policy: Policy, bus: Bus) -> None:
    with pytest.raises(InvalidFieldsError, match="No version is live"):
        start_canary(version(policy, "round_robin"), actor=ACTOR)
    live = live_version(policy)
    with pytest.raises(InvalidFieldsError, match=r"differs in: ttft_slo_s.*what-if"):
        start_canary(version(policy, "least_cost", ttft_slo_s=9.0), actor=ACTOR)
    with pytest.raises(InvalidFieldsError, match="does not work with the live queue order"):
        start_canary(version(policy, "central", order={"name": "late_binding"}), actor=ACTOR)
    other = version(policy, "round_robin", ttft_slo_s=9.0)
    assert untried(other, live) == ["ttft_slo_s"]


def test_holdback_is_incompatible_with_a_pulling_order() -> None:
    pulls = {"placement": {"name": "central"}, "order": {"name": "late_binding"}}
    (problem,) = problems_of({**pulls, "automation": {"holdback": {"share": 0.05}}})
    assert problem.path == "automation.holdback.share"
    assert problems_of({**pulls, "automation": {"holdback": {"share": 0}}}) == ()


@pytest.mark.parametrize(
    "course",
    [
        {"steps": ()},
        {"steps": (0.5, 0.1)},
        {"steps": (1.0,)},
        {"min_dwell_s": -1.0},
        {"advance": "soon"},
        {"guardrails": {"late_more": 7}},
        {"guardrails": {"unknown": 1}},
    ],
)
def test_invalid_steps_are_rejected(pool: Pool, policy: Policy, bus: Bus, course: dict[str, object]) -> None:
    live_version(policy)
    with pytest.raises(InvalidFieldsError):
        start_canary(version(policy, "round_robin"), actor=ACTOR, **course)  # type: ignore[arg-type]
    assert not Canary.objects.exists()


def test_viewer_sees_the_canary_and_changes_nothing(canary: Canary) -> None:
    viewer = Actor("key v", "api", role=Role.VIEWER)
    assert list(visible_canaries(viewer)) == [canary]
    for verb in (take_step, promote, abort):
        with pytest.raises(NotAllowedError):
            verb(canary, actor=viewer)
