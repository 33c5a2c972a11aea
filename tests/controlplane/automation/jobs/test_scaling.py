"""Scaling and ratio: mode act requests actions, mode advise records advice, and an override takes precedence."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.utils import timezone
from prometheus_client import CollectorRegistry

from controlplane.automation import switches
from controlplane.automation.jobs import prefill_decode, scaling
from controlplane.automation.models.engine_action import EngineAction
from controlplane.automation.models.plan_record import PlanRecord
from controlplane.automation.models.pool_automation import PoolAutomation
from controlplane.automation.pool_facts import demand_history
from controlplane.fleet.models.engine import Engine
from controlplane.platform.actor import program
from controlplane.platform.field_problems import InvalidFieldsError
from controlplane.platform.models.job_run import JobRun
from gateway.bus.bus_metrics import WANTED_ENGINES, ScalingPlans
from planning.documents.scaling_document import ScalingDocument
from tests.controlplane.automation.world import World

pytestmark = pytest.mark.django_db

ACTOR = program("tests")
ACTS = {"mode": "act", "min_engines": 2, "max_engines": 8, "window_s": 20}


def live(world: World, seconds: float, job=scaling.JOB, work=None) -> None:
    def after_step() -> None:
        world.pool = type(world.pool).objects.get(pk=world.pool.pk)
        world.run(job, work or partial(scaling.scale, bus=world.bus), timedelta(seconds=5))

    world.pass_time(seconds, after_step=after_step)


def overload(world: World, seconds: float, late: float = 0.5) -> None:
    """Send twice the work that the engines can do, so that the share `late` of the requests is late."""
    for _ in range(int(seconds)):
        world.totals["requests"] += 10
        world.totals["on_time"] += round(10 * (1 - late))
        world.totals["work_s"] += 2.0 * Engine.objects.count()
        world.queued_s += 1.0
        live(world, 1)


def test_advice_is_stored_with_its_figures_and_starts_nothing(world: World) -> None:
    world.policy(scaling={**ACTS, "mode": "advise"})
    overload(world, 60)
    assert not EngineAction.objects.exists()
    record = PlanRecord.objects.filter(job="scaling", changes=True).latest("pk")
    assert (record.mode, record.outcome["carried_out"]) == ("advise", False)
    assert record.figures["target"] > record.figures["engines"] == 4
    assert record.figures["attainment"] == pytest.approx(0.5)
    assert record.summary


def test_gateways_export_the_wanted_engines_of_committed_plans(
    world: World, django_capture_on_commit_callbacks: Any
) -> None:
    registry = CollectorRegistry()
    ScalingPlans(registry, world.bus, clock=world.unix)
    world.policy(scaling={**ACTS, "mode": "advise"})
    overload(world, 60)
    assert registry.get_sample_value(WANTED_ENGINES, {"pool": "chat"}) is None
    with django_capture_on_commit_callbacks(execute=True):
        overload(world, 5)
    # The plan is only advised: an autoscaler outside the program follows it.
    assert not EngineAction.objects.exists()
    wanted = PlanRecord.objects.filter(job="scaling").latest("pk").figures["target"]
    assert registry.get_sample_value(WANTED_ENGINES, {"pool": "chat"}) == wanted > 4


def test_overload_starts_engines_once_and_waits_for_them(world: World) -> None:
    world.policy(scaling=ACTS)
    overload(world, 40)
    actions = list(EngineAction.objects.all())
    assert 1 <= len(actions) <= 4
    assert {action.kind for action in actions} == {"start"}
    assert {action.by for action in actions} == {"scaling"}
    overload(world, 40)
    assert Engine.objects.count() + EngineAction.objects.filter(kind="start").count() <= 8


def test_frozen_pool_plans_and_does_nothing(world: World) -> None:
    world.policy(scaling=ACTS)
    switches.freeze(world.pool, actor=ACTOR)
    overload(world, 40)
    assert not EngineAction.objects.exists()
    assert PlanRecord.objects.filter(job="scaling").latest("pk").mode == "frozen"


def test_override_acts_in_any_mode_until_it_ends(world: World) -> None:
    world.policy(scaling={**ACTS, "mode": "off"})
    PoolAutomation.objects.create(pool=world.pool, override_engines=6, override_until=world.now + timedelta(seconds=60))
    live(world, 20)
    assert EngineAction.objects.filter(kind="start").count() == 2
    live(world, 60)
    assert JobRun.objects.get(job="scaling").outcome["mode"] == "off"


def test_override_does_not_wait_for_the_next_regular_round(world: World) -> None:
    world.policy(scaling={**ACTS, "mode": "off"})
    live(world, 20)
    run = JobRun.objects.get(job="scaling")
    JobRun.objects.filter(pk=run.pk).update(lease_until=timezone.now() + timedelta(seconds=4), lease_owner="")
    switches.take_over(world.pool, engines=6, until=timezone.now() + timedelta(minutes=5), actor=ACTOR)
    due = JobRun.objects.get(pk=run.pk).lease_until
    assert due is not None
    assert due <= timezone.now()


def test_running_round_keeps_its_lease(world: World) -> None:
    live(world, 5)
    until = timezone.now() + timedelta(seconds=4)
    JobRun.objects.filter(job="scaling").update(lease_until=until, lease_owner="a worker")
    switches.freeze(world.pool, actor=ACTOR)
    assert JobRun.objects.get(job="scaling").lease_until == until


def test_override_below_the_current_size_drains_engines(world: World) -> None:
    world.policy(scaling=ACTS)
    PoolAutomation.objects.create(pool=world.pool, override_engines=3, override_until=world.now + timedelta(hours=1))
    live(world, 20)
    assert [action.kind for action in EngineAction.objects.all()] == ["stop"]


def test_override_needs_an_end_and_a_number(world: World) -> None:
    now = timezone.now()
    for until, engines in ((now - timedelta(1), 3), (now + timedelta(8), 3), (now + timedelta(1), None)):
        with pytest.raises(InvalidFieldsError):
            switches.take_over(world.pool, until=until, engines=engines, actor=ACTOR)
    changed = switches.take_over(world.pool, until=now + timedelta(1), engines=3, actor=ACTOR)
    assert switches.give_back(world.pool, actor=ACTOR, expected=changed.revision).override_until is None


def test_past_demand_is_read_from_stored_plans(world: World) -> None:
    world.policy(scaling={**ACTS, "mode": "advise"})
    overload(world, 130, late=0.0)
    world.forget()
    world.pass_time(20)
    points = demand_history(world.pool.slug, (), world.unix(), ScalingDocument())
    assert len(points) >= 2
    assert max(point.engines for point in points) == pytest.approx(8.0, rel=0.2)
    season = demand_history(world.pool.slug, (), world.unix() + 86_400, ScalingDocument())
    assert [point.at_s for point in season] == [point.at_s for point in points]


def test_role_changes_are_requested_if_decode_is_busier(world: World) -> None:
    world.policy(ratio={"mode": "act", "window_s": 30, "hold_s": 5, "cool_down_s": 60})
    Engine.objects.filter(name__in=("e-01", "e-02", "e-03")).update(role="prefill")
    Engine.objects.filter(name="e-04").update(role="decode")
    world.say("e-04", tpot_s=0.4, tpot_samples=20)
    live(world, 60, prefill_decode.JOB, prefill_decode.balance)
    action = EngineAction.objects.get()
    assert (action.kind, action.role) == ("change_role", "decode")
    figures = PlanRecord.objects.filter(job="prefill_decode", changes=True).latest("pk").figures
    assert figures["imbalance"] > 1.2
    assert (figures["prefill"], figures["decode"]) == (3, 1)


def test_pool_without_roles_has_no_ratio(world: World) -> None:
    world.policy(ratio={"mode": "act"})
    live(world, 10, prefill_decode.JOB, prefill_decode.balance)
    assert not PlanRecord.objects.filter(job="prefill_decode").exists()


def fail_starts(world: World) -> int:
    """Fail all open starts, and return their number."""
    return EngineAction.objects.filter(kind="start", state__in=("wanted", "sent")).update(
        state="failed", says="the pod never came", finished_at=world.now
    )


def test_failed_starts_are_not_requested_again_and_again(world: World) -> None:
    world.policy(scaling=ACTS)
    overload(world, 40)
    assert fail_starts(world) >= 1
    overload(world, 30)
    assert not EngineAction.objects.filter(state="wanted").exists()
    reasons = PlanRecord.objects.filter(job="scaling").latest("pk").reasons
    assert reasons[0]["code"] == "starts_fail"
    assert "the pod never came" in reasons[0]["text"]
    requested = EngineAction.objects.count()
    for _ in range(60):
        overload(world, 10)
        fail_starts(world)
    assert EngineAction.objects.count() - requested <= 4, "each failure doubles the pause"
    assert "the pod never came" in str(JobRun.objects.get(job="scaling").outcome["reason"])


def test_no_engine_is_stopped_if_its_replacement_in_the_other_role_failed_to_start(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoFlips:
        can_change_role = False

    monkeypatch.setattr(prefill_decode, "actuator_of", lambda _pool: NoFlips())
    monkeypatch.setattr("controlplane.automation.plan_actions.actuator_of", lambda _pool: NoFlips())
    Engine.objects.filter(name__in=("e-01", "e-02", "e-03")).update(role="prefill")
    Engine.objects.filter(name="e-04").update(role="decode")
    world.policy(ratio={"mode": "act", "window_s": 30, "hold_s": 5, "cool_down_s": 60})
    EngineAction.objects.create(
        key="k", pool=world.pool, kind="start", role="decode", state="failed", by="t", says="the pod never came",
        next_try_at=world.now, deadline_at=world.now, requested_at=world.now, finished_at=world.now,
    )  # fmt: skip
    world.say("e-04", tpot_s=0.4, tpot_samples=20)
    live(world, 58, prefill_decode.JOB, prefill_decode.balance)
    assert EngineAction.objects.count() == 1
    assert PlanRecord.objects.filter(job="prefill_decode").latest("pk").reasons[0]["code"] == "starts_fail"
