"""The job aborts regressing canaries, steps the others, and stores its evaluations."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from controlplane.automation.switches import freeze
from controlplane.fleet.models.pool import Pool
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.policies.models.policy import Policy
from controlplane.publication.snapshot import build_snapshot
from controlplane.trials.canary.evaluation import stored_evaluation
from controlplane.trials.canary.holdback import evaluate_slices
from controlplane.trials.canary.job import evaluate_canaries
from controlplane.trials.canary.lifecycle import start_canary
from controlplane.trials.models.canary import Canary
from controlplane.trials.models.holdback import Holdback, HoldbackDay
from gateway.bus.bus import Bus
from tests.controlplane.trials.canary.scene import ACTOR, ArmScene, arm_scene, live_version, version
from tests.planning.arm_data import slices

pytestmark = pytest.mark.django_db
LIVE, CANARY, CONTROL = ("live", 1), ("canary", 2), ("control", 1)


def started(policy: Policy, **course: object) -> Canary:
    live_version(policy)
    return start_canary(version(policy, "round_robin"), actor=ACTOR, **course)  # type: ignore[arg-type]


def watch(made: ArmScene, count: int, *, slower: float = 1.0, seed: int = 1, base: int = 40) -> int:
    """Report results and evaluate after each report; return the number of evaluations until no canary runs."""
    for number, slice_ in enumerate(slices(seed, count, base, 6, slower=slower)):
        made.report(slice_, LIVE, CANARY)
        evaluate_canaries(made.intake, clock=made.clock)
        if not Canary.objects.filter(state="running").exists():
            return number + 1
    return count


def test_regression_is_aborted_within_a_minute_and_audited(pool: Pool, policy: Policy, bus: Bus) -> None:
    canary = started(policy)
    with arm_scene(canary.step_at) as made:
        evaluations = watch(made, 30, slower=5.0)
    canary.refresh_from_db()
    assert evaluations * 2 <= 60
    assert (canary.state, canary.ended_by) == ("aborted", "canary")
    assert "0." in canary.reason
    event = AuditEvent.objects.get(verb="canary.abort")
    assert (event.actor_name, event.object_id, event.pool_slug) == ("canary", canary.key, "chat")
    assert build_snapshot(0.0).pools[0].arms == ()
    evaluation = stored_evaluation(canary.evaluation)
    assert evaluation is not None
    assert evaluation.tried.p50_s is not None
    assert evaluation.base.p50_s is not None
    assert evaluation.tried.p50_s > 2 * evaluation.base.p50_s


def test_good_canary_steps_and_is_promoted_automatically_if_configured(pool: Pool, policy: Policy, bus: Bus) -> None:
    canary = started(policy, steps=(0.1, 0.4), min_dwell_s=20.0, advance="promote")
    with arm_scene(canary.step_at) as made:
        watch(made, 60, slower=0.9)
    canary.refresh_from_db()
    policy.refresh_from_db()
    assert canary.state == "promoted"
    assert policy.live_version == canary.version
    verbs = list(AuditEvent.objects.filter(object_kind__in=("canary", "policy")).order_by("pk").values_list("verb"))
    assert verbs[-4:] == [("canary.start",), ("canary.step",), ("canary.promote",), ("policy.publish",)]


def test_canary_without_the_required_approval_waits_for_promotion(pool: Pool, policy: Policy, bus: Bus) -> None:
    canary = started(policy, min_dwell_s=10.0, advance="promote", steps=(0.4,))
    Policy.objects.filter(pk=policy.pk).update(needs_approval=True)
    with arm_scene(canary.step_at) as made:
        watch(made, 30, slower=0.9)
    canary.refresh_from_db()
    evaluation = stored_evaluation(canary.evaluation)
    assert (canary.state, evaluation is not None and evaluation.reasons[0].code) == ("running", "last_step")


def test_manual_canary_stays_at_its_step_and_reports_why(pool: Pool, policy: Policy, bus: Bus) -> None:
    canary = started(policy, min_dwell_s=0.0)
    with arm_scene(canary.step_at) as made:
        watch(made, 30)
    canary.refresh_from_db()
    assert (canary.state, canary.step, canary.revision) == ("running", 0, 1)
    evaluation = stored_evaluation(canary.evaluation)
    assert evaluation is not None
    assert evaluation.reasons[0].code == "by_hand"
    assert len(evaluation.points) in (6, 7)


def test_results_from_before_the_step_are_ignored(pool: Pool, policy: Policy, bus: Bus) -> None:
    canary = started(policy)
    with arm_scene(canary.step_at) as made:
        made.now_s -= 100.0
        for slice_ in slices(1, 40, 40, 6, slower=9.0):
            made.report(slice_, LIVE, CANARY)
        made.now_s = canary.step_at.timestamp() + 2.0
        evaluate_canaries(made.intake, clock=made.clock)
    canary.refresh_from_db()
    assert canary.state == "running"


def test_policy_that_loses_to_the_holdback_falls_back_and_returns(pool: Pool, policy: Policy, bus: Bus) -> None:
    quick = {"share": 0.05, "hold_s": 4, "cool_down_s": 10, "guardrails": {"window_s": 20}}
    first = live_version(policy, automation={"holdback": quick})
    canary = start_canary(version(policy, "round_robin"), actor=ACTOR)
    assert first.published_at is not None
    seen = []
    with arm_scene(first.published_at) as made:
        for slice_ in slices(1, 12, 10, 20, slower=8.0) + slices(1, 80, 10, 20):
            made.report(slice_, CONTROL, LIVE)
            evaluate_slices(made.intake, clock=made.clock)
            state = Holdback.objects.get().state
            if not seen or seen[-1][0] != state:
                seen.append((state, [arm.share for arm in build_snapshot(0.0).pools[0].arms if arm.arm == "control"]))
    assert seen == [("slice", [0.05]), ("fallback", [1.0]), ("probing", [0.9]), ("slice", [0.05])]
    canary.refresh_from_db()
    assert (canary.state, canary.reason) == ("ended", "Pool chat fell back to its simple rule")
    verbs = AuditEvent.objects.filter(verb__startswith="holdback").order_by("pk").values_list("verb", flat=True)
    kept = "holdback.keep"
    assert list(verbs) == [kept, "holdback.fall_back", "holdback.try_again", kept]


def test_frozen_pool_keeps_its_holdback(pool: Pool, policy: Policy, bus: Bus) -> None:
    first = live_version(policy, automation={"holdback": {"share": 0.05, "hold_s": 0}})
    freeze(pool, actor=ACTOR)
    assert first.published_at is not None
    with arm_scene(first.published_at) as made:
        for slice_ in slices(1, 20, 6, 40, slower=6.0):
            made.report(slice_, CONTROL, LIVE)
            evaluate_slices(made.intake, clock=made.clock)
    assert Holdback.objects.get().state == "slice"


def test_what_both_sides_answered_is_counted_once_per_day(pool: Pool, policy: Policy, bus: Bus) -> None:
    first = live_version(policy, automation={"holdback": {"share": 0.05, "fall_back": False}})
    midnight = datetime(2026, 11, 11, tzinfo=UTC)
    assert first.published_at is not None
    given = slices(1, 90, 30, 4)
    with arm_scene(midnight - timedelta(seconds=60)) as made:
        for slice_ in given:
            made.report(slice_, CONTROL, LIVE)
            evaluate_slices(made.intake, clock=made.clock)
            # A second process evaluates as well.
            evaluate_slices(made.intake, clock=made.clock)
        counted_to_s = Holdback.objects.get().counted_to_s
    days = {row.day.isoformat(): row for row in HoldbackDay.objects.all()}
    assert set(days) == {"2026-11-10", "2026-11-11"}
    # One slice every two seconds. The first began before the holdback did; those of the last seconds are incomplete.
    counted = given[1 : int(counted_to_s - midnight.timestamp() + 60) // 2 + 1]
    assert 60 < len(counted) < 90
    for name, side in (("control", "base"), ("live", "tried")):
        windows = [getattr(slice_, side) for slice_ in counted]
        assert sum(getattr(row, name) for row in days.values()) == sum(item.judged for item in windows)
        assert sum(getattr(row, f"{name}_late") for row in days.values()) == sum(item.late for item in windows)
    assert {row.placement for row in days.values()} == {"least_loaded"}
