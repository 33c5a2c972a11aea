"""A manual verdict overrides engine health, is audited, and ends at its stated time."""

from __future__ import annotations

from datetime import timedelta

import pytest

from controlplane.automation.engine_verdicts import (
    TRUSTED_FOR,
    end_verdict,
    held_by_hand,
    put_verdict,
    quarantine,
    trust_again,
)
from controlplane.automation.jobs import engine_health
from controlplane.automation.models.engine_health import EngineHealth
from controlplane.fleet.models.engine import Engine
from controlplane.platform.actor import program
from controlplane.platform.models.audit_event import AuditEvent
from tests.controlplane.automation.conftest import world
from tests.controlplane.automation.world import World

__all__ = ["world"]

pytestmark = pytest.mark.django_db

ACTOR = program("tests")


def engine(name: str = "e-01") -> Engine:
    return Engine.objects.select_related("pool").get(engine_id=name)


def state(name: str = "e-01") -> str:
    return EngineHealth.objects.get(engine__engine_id=name).state


def rounds(world: World, seconds: float) -> None:
    world.pass_time(
        seconds, after_step=lambda: world.run(engine_health.JOB, engine_health.judge, timedelta(seconds=1)) and None
    )


@pytest.mark.parametrize("mode", ["act", "advise", "off"])
def test_manual_quarantine_survives_rounds_that_find_the_engine_healthy(world: World, mode: str) -> None:
    world.policy(health={"mode": mode})
    assert quarantine(engine(), actor=ACTOR, at=world.now, why="smells of smoke")
    rounds(world, 5)
    stored = EngineHealth.objects.get(engine__engine_id="e-01")
    assert (stored.state, stored.until) == ("quarantined", None)
    assert stored.reason == "by tests: smells of smoke"
    assert AuditEvent.objects.filter(verb="engine.quarantine", object_id="e-01", actor_name="tests").count() == 1


def test_quarantining_twice_changes_nothing(world: World) -> None:
    assert quarantine(engine(), actor=ACTOR, at=world.now)
    assert not quarantine(engine(), actor=ACTOR, at=world.now)
    assert AuditEvent.objects.filter(verb="engine.quarantine").count() == 1


def test_trusted_engine_is_exempt_from_health_checks_for_a_limited_time(world: World) -> None:
    world.say("e-01", reachable=False)
    rounds(world, 6)
    assert state() == "quarantined"
    assert trust_again(engine(), actor=ACTOR, at=world.now, why="the cable was loose")
    rounds(world, 5)
    assert state() == "healthy"
    world.now += TRUSTED_FOR
    rounds(world, 5)
    assert state() == "quarantined"


def test_ended_override_returns_the_engine_to_health_checks(world: World) -> None:
    assert not end_verdict(engine(), actor=ACTOR, at=world.now)
    quarantine(engine(), actor=ACTOR, at=world.now)
    assert end_verdict(engine(), actor=ACTOR, at=world.now, why="it was another one")
    assert state() == "healthy"
    world.say("e-01", reachable=False)
    rounds(world, 6)
    assert trust_again(engine(), actor=ACTOR, at=world.now)
    rounds(world, 2)
    assert state() == "healthy"
    assert end_verdict(engine(), actor=ACTOR, at=world.now, why="it is not well after all")
    rounds(world, 2)
    assert state() == "quarantined"
    event = AuditEvent.objects.get(verb="engine.end_trust")
    assert (event.object_id, event.why, event.before["code"]) == ("e-01", "it is not well after all", "trusted")


def test_only_quarantined_engines_can_be_trusted_again(world: World) -> None:
    assert not trust_again(engine(), actor=ACTOR, at=world.now)
    put_verdict(engine(), "suspect", actor=ACTOR, since=world.now, code="crawling", reason="slow")
    assert not trust_again(engine(), actor=ACTOR, at=world.now)


def test_trust_expires_and_manual_quarantine_does_not(world: World) -> None:
    quarantine(engine(), actor=ACTOR, at=world.now)
    row = EngineHealth.objects.get()
    assert held_by_hand(row, world.now + timedelta(days=365))
    trust_again(engine(), actor=ACTOR, at=world.now)
    row = EngineHealth.objects.get()
    assert held_by_hand(row, world.now + TRUSTED_FOR - timedelta(seconds=1))
    assert not held_by_hand(row, world.now + TRUSTED_FOR)
    assert not held_by_hand(None, world.now)
