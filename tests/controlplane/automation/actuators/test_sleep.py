"""Scaling by sleep mode: an idle pool's engines sleep and stay registered; a waiting request wakes one at once."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from controlplane.automation.actuators import sleep
from controlplane.automation.actuators.sleep import SLEEP, WAKE_UP
from controlplane.automation.jobs import engine_actions, scaling
from controlplane.automation.models.engine_action import EngineAction
from controlplane.automation.plan_actions import request_start, request_stop
from controlplane.automation.reading import engine_counts
from controlplane.automation.rounds import run_rounds
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import program
from controlplane.publication.snapshot import build_snapshot
from gateway.bus.bus_metrics import WANTED_ENGINES, ScalingPlans
from gateway.contracts.unserved_requests import TOPIC, UnservedRequests, encode_unserved
from tests.controlplane.automation.world import World

pytestmark = pytest.mark.django_db

ACTOR = program("tests")
ZERO = {"mode": "act", "min_engines": 0, "window_s": 10, "down_cool_down_s": 5, "warm_up_s": 8, "forecast": False}


class SleepyEngines:
    """Engines that record the calls of sleep mode. Change `status` to let them fail."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.status = 200
        self.error: Exception | None = None

    def post(self, engine: Engine, path: str) -> int:
        if self.error is not None:
            raise self.error
        self.calls.append((engine.name, path))
        return self.status


@pytest.fixture
def sleepy(world: World, monkeypatch: pytest.MonkeyPatch) -> SleepyEngines:
    engines = SleepyEngines()
    monkeypatch.setattr(sleep, "post_to_engine", engines.post)
    Pool.objects.filter(pk=world.pool.pk).update(actuator="sleep", actuator_settings={})
    world.pool.refresh_from_db()
    return engines


def live(world: World, seconds: float, *, scales: bool = True, until: Callable[[], bool] = lambda: False) -> float:
    """Let time pass with all jobs, at most until the condition holds; return the seconds that passed."""
    for second in range(int(seconds)):
        if until():
            return second
        world.pass_time(1)
        world.pool = Pool.objects.get(pk=world.pool.pk)
        if scales:
            world.run(scaling.JOB, partial(scaling.scale, bus=world.bus), timedelta(seconds=5))
        work = partial(engine_actions.carry_out, observed=world.observed, clock=world.clock)
        run_rounds(engine_actions.JOB, engine_actions.EVERY, work, pools=[world.pool], clock=world.clock)
    return seconds


def states() -> list[str]:
    return sorted(Engine.objects.values_list("desired_state", flat=True))


def test_an_idle_pool_sleeps_and_a_request_wakes_one_engine(
    world: World, sleepy: SleepyEngines, django_capture_on_commit_callbacks: Any
) -> None:
    registry = CollectorRegistry()
    ScalingPlans(registry, world.bus, clock=world.unix)
    world.policy(scaling=ZERO)
    with django_capture_on_commit_callbacks(execute=True):
        live(world, 200, until=lambda: states() == ["asleep"] * 4)
    assert states() == ["asleep"] * 4
    assert sorted(sleepy.calls) == [(f"e-0{number}", SLEEP) for number in range(1, 5)]
    with django_capture_on_commit_callbacks(execute=True):
        live(world, 6)
    assert registry.get_sample_value(WANTED_ENGINES, {"pool": "chat"}) == 0.0
    assert engine_counts(world.pool, [], world.observed, world.now)["asleep"] == 4
    (entry,) = build_snapshot(world.unix()).pools
    assert entry.start_s == 8

    waiting = UnservedRequests(pool_id="chat", at=world.unix(), requests=2)
    world.bus.append(TOPIC, encode_unserved(waiting))
    with django_capture_on_commit_callbacks(execute=True):
        live(world, 15, until=lambda: EngineAction.objects.filter(kind="start", state="done").exists())
    assert states() == ["asleep"] * 3 + ["ready"]
    assert [path for _, path in sleepy.calls[4:]] == [WAKE_UP]
    assert EngineAction.objects.get(kind="start").why == "2 requests wait and no engine runs"
    assert registry.get_sample_value(WANTED_ENGINES, {"pool": "chat"}) == 1.0


def test_a_waiting_request_is_not_left_to_the_next_regular_round(
    world: World, sleepy: SleepyEngines, monkeypatch: pytest.MonkeyPatch
) -> None:
    Engine.objects.update(desired_state="asleep")
    world.policy(scaling=ZERO)
    monkeypatch.setattr(scaling, "fleet_observation", lambda: world.observed)
    monkeypatch.setattr(scaling, "get_bus", lambda: world.bus)
    scaling.scaling()
    assert not EngineAction.objects.exists()
    waiting = UnservedRequests(pool_id="chat", at=time.time(), requests=1)
    world.bus.append(TOPIC, encode_unserved(waiting))
    scaling.scaling()
    assert [action.kind for action in EngineAction.objects.all()] == ["start"]


def test_more_engines_than_are_registered_are_never_wanted(world: World, sleepy: SleepyEngines) -> None:
    world.policy(scaling={**ZERO, "min_engines": 1, "max_engines": 16})
    for _ in range(40):
        world.totals["requests"] += 10
        world.totals["work_s"] += 8.0
        world.queued_s += 1.0
        live(world, 1)
    assert not EngineAction.objects.exists()


def test_an_engine_that_does_not_wake_goes_back_to_sleep_and_stays_registered(
    world: World, sleepy: SleepyEngines
) -> None:
    Engine.objects.update(desired_state="asleep")
    request_start(world.pool, "mixed", actor=ACTOR, why="test", at=world.now)
    world.say("e-01", reachable=False, healthy=False)
    live(world, 5, scales=False)
    assert states() == ["asleep"] * 3 + ["ready"]
    world.now += timedelta(minutes=20)
    live(world, 3, scales=False)
    assert EngineAction.objects.get().state == "failed"
    assert states() == ["asleep"] * 4
    assert [path for _, path in sleepy.calls] == [WAKE_UP, SLEEP]


def test_a_start_waits_for_an_engine_that_is_about_to_sleep(world: World, sleepy: SleepyEngines) -> None:
    Engine.objects.exclude(name="e-01").delete()
    world.say("e-01", in_flight=1)
    request_stop(Engine.objects.get(), actor=ACTOR, why="test", at=world.now)
    live(world, 3, scales=False)
    request_start(world.pool, "mixed", actor=ACTOR, why="test", at=world.now)
    live(world, 3, scales=False)
    assert EngineAction.objects.get(kind="start").says == "The engine is about to sleep and can be woken then."
    world.say("e-01", in_flight=0)
    live(world, 30, scales=False)
    assert states() == ["ready"]
    assert sleepy.calls == [("e-01", SLEEP), ("e-01", WAKE_UP)]


def test_an_engine_without_sleep_mode_returns_to_service_and_the_action_names_the_remedy(
    world: World, sleepy: SleepyEngines
) -> None:
    sleepy.status = 404
    request_stop(Engine.objects.get(name="e-01"), actor=ACTOR, why="test", at=world.now)
    live(world, 8, scales=False)
    action = EngineAction.objects.get()
    assert action.state == "failed"
    assert "--enable-sleep-mode" in action.says
    assert states() == ["ready"] * 4


@pytest.mark.parametrize("error", [ConnectionRefusedError(), http.client.BadStatusLine("x"), None])
def test_a_call_that_fails_is_repeated(world: World, sleepy: SleepyEngines, error: Exception | None) -> None:
    sleepy.error, sleepy.status = error, 500
    request_stop(Engine.objects.get(name="e-01"), actor=ACTOR, why="test", at=world.now)
    live(world, 8, scales=False)
    assert EngineAction.objects.get().state == "sent"
    sleepy.error, sleepy.status = None, 200
    live(world, 20, scales=False)
    assert EngineAction.objects.get().state == "done"


def test_ranks_of_one_process_do_not_sleep_alone(world: World, sleepy: SleepyEngines) -> None:
    Engine.objects.filter(name="e-01").update(url="http://127.0.0.1:21000#0")
    request_stop(Engine.objects.get(name="e-01"), actor=ACTOR, why="test", at=world.now)
    live(world, 8, scales=False)
    assert "ranks can only sleep together" in EngineAction.objects.get().says
    assert sleepy.calls == []
