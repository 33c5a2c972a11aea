"""Engine health in mode act is durable, published, and audited. Advice and a freeze change nothing."""

from __future__ import annotations

import pytest

from controlplane.automation import switches
from controlplane.automation.jobs import engine_health as job
from controlplane.automation.models.engine_health import EngineHealth
from controlplane.automation.models.plan_record import PlanRecord
from controlplane.platform.actor import program
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.models.job_run import JobRun
from controlplane.publication.snapshot import build_snapshot
from tests.controlplane.automation.world import World

pytestmark = pytest.mark.django_db

ACTOR = program("tests")


def judge(world: World) -> None:
    world.pool.refresh_from_db()
    world.run(job.JOB, job.judge, job.EVERY)


def live(world: World, seconds: float) -> None:
    world.pass_time(seconds, after_step=lambda: judge(world))


def silence(world: World, name: str) -> None:
    world.say(name, reachable=False, healthy=False, reason="connection refused")


def published(name: str) -> str:
    return next(engine.health for engine in build_snapshot(0.0).engines if engine.engine_id == name)


def test_healthy_engines_have_no_verdict_and_few_plans_are_stored(world: World) -> None:
    live(world, 120)
    assert not EngineHealth.objects.exists()
    assert PlanRecord.objects.count() <= 4
    assert JobRun.objects.count() == 1


def test_unhealthy_engine_is_quarantined_published_and_restored_slowly(world: World) -> None:
    live(world, 5)
    silence(world, "e-02")
    live(world, 6)
    verdict = EngineHealth.objects.get()
    assert (verdict.engine_id, verdict.state) == (world.pool.engines.get(name="e-02").pk, "quarantined")
    assert verdict.reason
    assert published("e-02") == "quarantined"
    assert AuditEvent.objects.get(verb="engine.quarantine").object_id == "e-02"
    world.say("e-02", reachable=True, healthy=True, reason="")
    live(world, 3)
    verdict.refresh_from_db()
    states = [verdict.state]
    live(world, 60)
    verdict.refresh_from_db()
    assert "probation" in [*states, *AuditEvent.objects.values_list("after__health", flat=True)]
    live(world, 60)
    verdict.refresh_from_db()
    assert (verdict.state, published("e-02")) == ("healthy", "healthy")


def test_verdict_is_audited_once_however_often_it_is_evaluated(world: World) -> None:
    live(world, 5)
    silence(world, "e-02")
    live(world, 30)
    assert AuditEvent.objects.filter(verb="engine.quarantine").count() == 1


def test_advice_is_recorded_and_changes_nothing(world: World) -> None:
    world.policy(health={"mode": "advise"})
    live(world, 5)
    silence(world, "e-02")
    live(world, 6)
    assert not EngineHealth.objects.exists()
    record = PlanRecord.objects.filter(changes=True).latest("pk")
    assert (record.mode, record.outcome) == ("advise", {"carried_out": False})
    assert record.plan["changed"] == ["e-02"]


def test_frozen_pool_gets_no_new_verdict_and_reports_the_freeze(world: World) -> None:
    live(world, 5)
    switches.freeze(world.pool, actor=ACTOR)
    silence(world, "e-02")
    live(world, 6)
    assert not EngineHealth.objects.exists()
    assert JobRun.objects.get().outcome["mode"] == "frozen"
    switches.unfreeze(world.pool, actor=ACTOR)
    live(world, 3)
    assert EngineHealth.objects.get().state == "quarantined"


def test_switching_the_automation_off_returns_engines_to_service(world: World) -> None:
    live(world, 5)
    silence(world, "e-02")
    live(world, 6)
    world.policy(health={"mode": "off"})
    live(world, 2)
    assert published("e-02") == "healthy"


def test_memory_survives_a_restart_of_the_judging_process(world: World) -> None:
    live(world, 5)
    silence(world, "e-02")
    live(world, 6)
    world.forget()
    live(world, 5)
    assert EngineHealth.objects.get().state == "quarantined"
    assert AuditEvent.objects.filter(verb="engine.quarantine").count() == 1
