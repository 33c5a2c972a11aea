"""A pool gets a share of its service, is judged like a version, and returns the share."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest

from controlplane.fleet.models.pool import Pool
from controlplane.fleet.topology import change_pool
from controlplane.platform.actor import Actor
from controlplane.platform.field_problems import InvalidFieldsError
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.role import Role
from controlplane.policies.models.policy import Policy
from controlplane.publication.snapshot import build_snapshot
from controlplane.trials.canary.end import CanaryOverError, abort
from controlplane.trials.canary.evaluation import stored_evaluation
from controlplane.trials.canary.evidence import Evidence
from controlplane.trials.canary.job import evaluate_canaries
from controlplane.trials.canary.lifecycle import promote, start_canary, take_step, visible_canaries
from controlplane.trials.models.canary import Canary
from gateway.bus.bus import Bus
from gateway.contracts.snapshot import decode_snapshot, encode_snapshot
from gateway.reports.arm_results import TOPIC, ArmReport, ArmRow
from planning.trials.comparison import ArmSlice
from tests.controlplane.trials.canary.scene import ACTOR, ArmScene, arm_scene, live_version, version
from tests.planning.arm_data import slices

pytestmark = pytest.mark.django_db


def another(pool: Pool, slug: str, weight: int, **changes: object) -> Pool:
    known = {"region": pool.region, "served_model": pool.served_model, "policy": pool.policy}
    return Pool.objects.create(slug=slug, name=slug, weight=weight, **{**known, **changes})


@pytest.fixture
def fresh(pool: Pool, policy: Policy, bus: Bus) -> Pool:
    """Return a pool without weight, next to two others with weights of 3 to 1."""
    live_version(policy)
    another(pool, "more", 300)
    return another(pool, "new", 0)


def pools() -> dict[str, tuple[str, float]]:
    """Return arm and weight of each pool as a gateway reads them."""
    read = decode_snapshot(encode_snapshot(build_snapshot(0.0)))
    return {pool.pool_id: (pool.arm, round(pool.weight, 6)) for pool in read.pools}


def report(made: ArmScene, given: ArmSlice, *, also: Iterable[ArmRow] = ()) -> None:
    """Report the pool on trial and both others, which have equal results."""
    rows = (
        ArmRow("chat", "live", 1, given.base),
        ArmRow("more", "live", 1, given.base),
        ArmRow("new", "canary", 1, given.tried),
    )
    made.bus.append(TOPIC, msgspec.msgpack.encode(ArmReport("g", made.now_s, (*rows, *also))))
    made.now_s += 2.0


def watch(made: ArmScene, count: int, **figures: float) -> None:
    for slice_ in slices(1, count, 20, 6, **figures):  # type: ignore[arg-type]
        report(made, slice_)
        evaluate_canaries(made.intake, clock=made.clock)


def test_share_is_in_the_snapshot_and_is_returned_on_abort(fresh: Pool) -> None:
    before = pools()
    assert before == {"chat": ("", 100), "more": ("", 300), "new": ("", 0)}
    canary = start_canary(fresh, steps=(0.2, 0.5), actor=ACTOR, why="engine 0.9")
    assert pools() == {"chat": ("live", 100), "more": ("live", 300), "new": ("canary", 100)}
    take_step(canary, actor=ACTOR, evidence=Evidence.JUDGED)
    assert pools()["new"] == ("canary", 400)
    abort(canary, actor=ACTOR, why="late")
    assert pools() == before
    events = AuditEvent.objects.filter(object_kind="canary").order_by("pk").values_list("verb", "pool_slug", "why")
    assert list(events) == [
        ("canary.start", "new", "engine 0.9"), ("canary.step", "new", ""), ("canary.abort", "new", "late"),
    ]  # fmt: skip


def test_regression_is_aborted_within_a_minute_and_returns_the_share(fresh: Pool) -> None:
    canary = start_canary(fresh, steps=(0.2,), actor=ACTOR)
    with arm_scene(canary.step_at) as made:
        watch(made, 30, slower=5.0)
    canary.refresh_from_db()
    assert (canary.state, canary.ended_by) == ("aborted", "canary")
    assert "pool new" in canary.reason
    assert "the rest of the service" in canary.reason
    assert pools()["new"] == ("", 0)
    evaluation = stored_evaluation(canary.evaluation)
    assert evaluation is not None
    assert evaluation.at - canary.started_at.timestamp() <= 60
    assert evaluation.base.requests > evaluation.tried.requests > 0, "both other pools are its baseline"


def test_good_pool_steps_and_keeps_its_share_automatically_if_configured(fresh: Pool, policy: Policy) -> None:
    canary = start_canary(fresh, steps=(0.1, 0.2), min_dwell_s=20.0, advance="promote", actor=ACTOR)
    Policy.objects.filter(pk=policy.pk).update(needs_approval=True)
    with arm_scene(canary.step_at) as made:
        watch(made, 60, slower=0.9)
    canary.refresh_from_db()
    assert canary.state == "promoted"
    assert pools() == {"chat": ("", 100), "more": ("", 300), "new": ("", 100)}
    event = AuditEvent.objects.get(verb="pool.change")
    assert (event.object_id, event.before["weight"], event.after["weight"]) == ("new", 0, 100)
    policy.refresh_from_db()
    assert policy.live_version == canary.against


def test_results_of_the_pools_in_other_arms_are_ignored(fresh: Pool) -> None:
    canary = start_canary(fresh, steps=(0.2,), actor=ACTOR)
    with arm_scene(canary.step_at) as made:
        for good, bad in zip(slices(1, 30, 20, 6), slices(1, 30, 60, 60, failing=1.0), strict=True):
            report(made, good, also=(ArmRow("new", "control", 1, bad.tried), ArmRow("new", "", 1, bad.tried)))
            evaluate_canaries(made.intake, clock=made.clock)
    canary.refresh_from_db()
    assert canary.running


@pytest.mark.parametrize(
    "changes",
    [{"weight": 10}, {"mode": "observe"}, {"served_model": "m-70b"}],
)
def test_manual_change_of_the_pool_ends_its_trial(fresh: Pool, changes: dict[str, object]) -> None:
    canary = start_canary(fresh, actor=ACTOR)
    change_pool(fresh, changes, actor=ACTOR)
    with arm_scene(canary.step_at) as made:
        watch(made, 1)
    canary.refresh_from_db()
    assert canary.state == "ended"
    assert pools()["new"] == ("", changes.get("weight", 0))


def test_invalid_share_of_a_service_is_rejected(fresh: Pool, pool: Pool, policy: Policy) -> None:
    def rejected(tried: Pool, words: str, **course: object) -> None:
        with pytest.raises(InvalidFieldsError, match=words):
            start_canary(tried, actor=ACTOR, **course)  # type: ignore[arg-type]

    rejected(pool, "weight of 100")
    rejected(another(pool, "alone", 0, served_model="m-70b"), "No other pool of m-70b")
    rejected(another(pool, "watch", 0, mode="observe"), "only observes")
    rejected(fresh, "no integer weight", steps=(0.9,))
    Pool.objects.filter(slug="more").update(weight=0)
    Pool.objects.filter(slug="chat").update(weight=1)
    rejected(fresh, "no integer weight", steps=(0.3,))
    other = Policy.objects.create(slug="q", name="Q")
    Pool.objects.filter(slug="chat").update(policy=other)
    rejected(fresh, "Use one policy for all")
    assert not Canary.objects.exists()


def test_share_that_no_weight_can_express_is_not_promoted(fresh: Pool) -> None:
    canary = start_canary(fresh, steps=(0.5,), actor=ACTOR)
    Pool.objects.filter(slug="chat").update(weight=1000)
    with pytest.raises(CanaryOverError, match="no integer weight"):
        promote(canary, actor=ACTOR, evidence=Evidence.JUDGED)
    canary.refresh_from_db()
    assert canary.running


def test_policy_has_one_trial_at_a_time_which_another_live_version_ends(fresh: Pool, policy: Policy) -> None:
    canary = start_canary(fresh, actor=ACTOR)
    with pytest.raises(CanaryOverError, match="already has a running canary"):
        start_canary(version(policy, "round_robin"), actor=ACTOR)
    live_version(policy, "least_loaded")
    canary.refresh_from_db()
    assert (canary.state, pools()["new"]) == ("ended", ("", 0))


def test_only_people_who_see_the_pool_see_its_trial(fresh: Pool, pool: Pool) -> None:
    canary = start_canary(fresh, actor=ACTOR)
    of_new = Actor("key n", "api", role=Role.VIEWER, pools=frozenset({fresh.slug}))
    of_other = Actor("key c", "api", role=Role.VIEWER, pools=frozenset({pool.slug}))
    assert list(visible_canaries(of_new)) == [canary]
    assert not visible_canaries(of_other).exists()
