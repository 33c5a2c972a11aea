"""Actions drain before they stop an engine, take effect once, are retried, and can be abandoned or cancelled."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from controlplane.automation import engine_actions, switches
from controlplane.automation.action_steps import CLAIM, StepContext, advance
from controlplane.automation.actuators.actuator import (
    ActionProgress,
    ActuatorAnswer,
    ActuatorError,
    NewEngine,
    RejectedActionError,
)
from controlplane.automation.jobs import engine_actions as job
from controlplane.automation.models.engine_action import EngineAction
from controlplane.automation.plan_actions import request_role_change, request_start, request_stop
from controlplane.automation.rounds import run_rounds
from controlplane.fleet.engine_lifecycle import set_desired_state
from controlplane.fleet.models.engine import Engine
from controlplane.platform.actor import program
from controlplane.platform.models.audit_event import AuditEvent
from tests.controlplane.automation.world import World

pytestmark = pytest.mark.django_db

ACTOR = program("tests")


class Recorder:
    """An actuator with configured responses that records its calls by idempotency key."""

    can_change_role = True
    keeps_engines = False

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.undone: list[str] = []
        self.fails: Exception | None = None
        self.progress = ActionProgress.IN_EFFECT
        self.gives_address = True

    def start(self, action: EngineAction) -> ActuatorAnswer:
        self._ask("start", action)
        port = 30_000 + action.pk
        engine = NewEngine(f"new-{action.pk}", f"http://127.0.0.1:{port}") if self.gives_address else None
        return ActuatorAnswer(ActionProgress.UNDER_WAY, "on its way", engine=engine)

    def undo(self, action: EngineAction) -> ActuatorAnswer:
        self.undone.append(action.key)
        return ActuatorAnswer(ActionProgress.IN_EFFECT, "taken back")

    def stop(self, action: EngineAction) -> ActuatorAnswer:
        self._ask("stop", action)
        return ActuatorAnswer(self.progress, "stopped")

    def change_role(self, action: EngineAction) -> ActuatorAnswer:
        self._ask("change_role", action)
        return ActuatorAnswer(self.progress, "turned")

    def _ask(self, what: str, action: EngineAction) -> None:
        self.asked.append((what, action.key))
        if self.fails is not None:
            raise self.fails


@pytest.fixture
def actuator(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr(job, "actuator_of", lambda _pool: recorder)
    return recorder


def carry_out(world: World) -> None:
    world.pool.refresh_from_db()
    work = partial(job.carry_out, observed=world.observed, clock=world.clock)
    run_rounds(job.JOB, job.EVERY, work, pools=[world.pool], clock=world.clock)


def live(world: World, seconds: float) -> None:
    world.pass_time(seconds, after_step=lambda: carry_out(world))


def engine(name: str) -> Engine:
    return Engine.objects.get(engine_id=name)


def requested(world: World, request: Any, *args: Any) -> EngineAction:
    action: EngineAction = request(*args, actor=ACTOR, why="a test", at=world.now)
    return action


def test_start_registers_the_engine_under_the_actions_key_and_ends_when_it_serves(
    world: World, actuator: Recorder
) -> None:
    action = requested(world, request_start, world.pool, "mixed")
    world.say(action.key, reachable=False, healthy=False, reason="not yet")
    live(world, 5)
    action.refresh_from_db()
    assert (action.state, action.engine.engine_id, action.engine.desired_state) == ("sent", action.key, "ready")
    world.say(action.key, reachable=True, healthy=True)
    live(world, 3)
    action.refresh_from_db()
    assert action.state == "done"
    assert actuator.asked == [("start", action.key)]


def test_start_without_an_address_adopts_the_next_registered_engine(world: World, actuator: Recorder) -> None:
    actuator.gives_address = False
    action = requested(world, request_start, world.pool, "mixed")
    live(world, 3)
    world.add("by-hand")
    live(world, 3)
    action.refresh_from_db()
    assert (action.state, action.engine_name) == ("done", "by-hand")
    assert {key for _, key in actuator.asked} == {action.key}


def test_engine_is_drained_stopped_and_deleted(world: World, actuator: Recorder) -> None:
    world.say("e-04", in_flight=2, bound=1)
    action = requested(world, request_stop, engine("e-04"))
    live(world, 6)
    action.refresh_from_db()
    assert (action.state, engine("e-04").desired_state, actuator.asked) == ("draining", "draining", [])
    assert action.says == "3 requests are left on it"
    world.say("e-04", in_flight=0, bound=0)
    live(world, 4)
    action.refresh_from_db()
    assert action.state == "done"
    assert not Engine.objects.filter(engine_id="e-04").exists()
    assert actuator.asked == [("stop", action.key)]


def test_role_change_drains_restarts_and_waits_for_the_new_role(world: World, actuator: Recorder) -> None:
    Engine.objects.filter(engine_id="e-01").update(role="prefill")
    action = requested(world, request_role_change, engine("e-01"), "decode")
    live(world, 4)
    world.say("e-01", reachable=False, healthy=False, reason="restarts")
    live(world, 4)
    action.refresh_from_db()
    assert (action.state, engine("e-01").role, engine("e-01").desired_state) == ("sent", "decode", "ready")
    world.say("e-01", reachable=True, healthy=True)
    live(world, 4)
    action.refresh_from_db()
    assert action.state == "done"
    assert actuator.asked == [("change_role", action.key)]


def test_failures_are_retried_with_the_same_key_and_growing_delays(world: World, actuator: Recorder) -> None:
    actuator.fails = ActuatorError("The webhook answered 503.")
    action = requested(world, request_start, world.pool, "mixed")
    live(world, 60)
    action.refresh_from_db()
    assert (action.state, action.says) == ("wanted", "The webhook answered 503.")
    assert 4 <= len(actuator.asked) <= 7
    actuator.fails = None
    live(world, 40)
    action.refresh_from_db()
    assert action.state == "done"
    assert {key for _, key in actuator.asked} == {action.key}


def test_rejected_action_fails_at_once_with_its_reason(world: World, actuator: Recorder) -> None:
    actuator.fails = RejectedActionError("no room")
    action = requested(world, request_start, world.pool, "mixed")
    live(world, 2)
    action.refresh_from_db()
    assert (action.state, action.says) == ("failed", "no room; taken back")
    assert AuditEvent.objects.filter(verb="engine_action.failed", object_id=action.key).exists()


def test_engine_that_never_responds_is_abandoned_and_leaves_nothing(world: World, actuator: Recorder) -> None:
    action = requested(world, request_start, world.pool, "mixed")
    world.say(action.key, reachable=False, healthy=False, reason="never")
    live(world, 2)
    world.now = action.deadline_at
    live(world, 3)
    action.refresh_from_db()
    assert (action.state, actuator.undone) == ("failed", [action.key])
    assert not Engine.objects.filter(engine_id=action.key).exists()


def test_engine_that_never_drains_returns_to_service(world: World, actuator: Recorder) -> None:
    world.say("e-04", in_flight=1)
    action = requested(world, request_stop, engine("e-04"))
    live(world, 3)
    world.now = action.deadline_at
    live(world, 3)
    action.refresh_from_db()
    assert (action.state, engine("e-04").desired_state) == ("failed", "ready")


def test_operator_who_returns_the_engine_to_service_cancels_its_stop(world: World, actuator: Recorder) -> None:
    world.say("e-04", in_flight=1)
    action = requested(world, request_stop, engine("e-04"))
    live(world, 3)
    set_desired_state(engine("e-04"), "ready", actor=ACTOR)
    world.say("e-04", in_flight=0)
    live(world, 3)
    action.refresh_from_db()
    assert (action.state, actuator.asked) == ("cancelled", [])


def test_freeze_cancels_actions_that_were_not_started(world: World, actuator: Recorder) -> None:
    world.say("e-04", in_flight=1)
    stop = requested(world, request_stop, engine("e-04"))
    live(world, 3)
    start = requested(world, request_start, world.pool, "mixed")
    switches.freeze(world.pool, actor=ACTOR)
    live(world, 3)
    for action in (stop, start):
        action.refresh_from_db()
        assert action.state == "cancelled"
    assert engine("e-04").desired_state == "ready"
    assert actuator.asked == []


def test_call_repeated_after_a_worker_crash_has_the_same_key_and_one_effect(world: World, actuator: Recorder) -> None:
    action = requested(world, request_start, world.pool, "mixed")
    context = StepContext(actuator, world.observed, world.clock)

    class Killed(BaseException):
        pass

    def die(*_args: Any) -> ActuatorAnswer:
        actuator._ask("start", action)
        raise Killed

    dying = Recorder()
    dying.start = die  # type: ignore[method-assign]
    with pytest.raises(Killed):
        advance(EngineAction.objects.get(pk=action.pk), StepContext(dying, world.observed, world.clock))
    advance(EngineAction.objects.get(pk=action.pk), context)
    live(world, CLAIM.total_seconds() + 4)
    action.refresh_from_db()
    assert action.state == "done"
    assert timedelta(seconds=15) > CLAIM
    assert {key for _, key in actuator.asked} == {action.key}
    assert Engine.objects.filter(engine_id=action.key).count() == 1


def test_two_workers_with_one_action_make_one_call(world: World, actuator: Recorder) -> None:
    action = requested(world, request_start, world.pool, "mixed")
    first, second = (EngineAction.objects.select_related("pool").get(pk=action.pk) for _ in range(2))
    context = StepContext(actuator, world.observed, world.clock)
    advance(first, context)
    advance(second, context)
    assert len(actuator.asked) == 1


def test_engine_has_one_open_action(world: World) -> None:
    assert request_stop(engine("e-01"), actor=ACTOR, why="", at=world.now) is not None
    assert request_stop(engine("e-01"), actor=ACTOR, why="", at=world.now) is None
    assert request_role_change(engine("e-01"), "decode", actor=ACTOR, why="", at=world.now) is None


def test_manual_action_waits_for_an_operator(world: World) -> None:
    action = requested(world, request_stop, engine("e-04"))
    live(world, 30)
    action.refresh_from_db()
    assert (action.state, action.says) == ("sent", "e-04 is drained. Stop it, then confirm.")
    engine_actions.confirm(action, actor=ACTOR)
    live(world, 3)
    action.refresh_from_db()
    assert action.state == "done"
    assert not Engine.objects.filter(engine_id="e-04").exists()
    with pytest.raises(engine_actions.EngineActionError):
        engine_actions.withdraw(action, actor=ACTOR)
