"""When the machine's clock is set back, no automation waits until the old time is reached again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from controlplane.automation.actuators.actuator import ActionProgress, ActuatorAnswer
from controlplane.automation.jobs import engine_actions, engine_health
from controlplane.automation.models.engine_action import OPEN_STATES, EngineAction
from controlplane.automation.models.engine_health import EngineHealth
from controlplane.automation.plan_actions import request_stop
from controlplane.automation.rounds import Round, RoundResult, moved_back, run_rounds
from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import program
from controlplane.platform.jobs.lease import LONGEST, acquire, held_at
from controlplane.platform.models.job_run import JobRun
from controlplane.policies.models.policy import Policy
from controlplane.trials.canary.holdback import evaluate_slices
from controlplane.trials.canary.job import evaluate_canaries
from controlplane.trials.canary.lifecycle import start_canary
from controlplane.trials.models.holdback import Holdback
from gateway.bus.bus import Bus
from tests.controlplane.automation.world import World
from tests.controlplane.trials.canary.scene import ArmScene, arm_scene, live_version, version
from tests.planning.arm_data import slices

pytestmark = pytest.mark.django_db

JUMPS = pytest.mark.parametrize("jump", [timedelta(hours=1), timedelta(days=1)], ids=["hour", "day"])
EVERY = timedelta(seconds=5)
ACTOR = program("tests")


@JUMPS
def test_lease_in_the_future_counts_as_expired_and_its_holder_is_fenced_off(jump: timedelta) -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    first = acquire("probe", "a", EVERY, clock=lambda: now)
    second = acquire("probe", "b", EVERY, clock=lambda: now - jump)
    assert first is not None
    assert second is not None
    assert second.fencing_token == first.fencing_token + 1
    assert abs(second.went_back - jump) <= EVERY
    assert JobRun.objects.filter(held_at(now - jump)).exists()


def test_clock_skew_of_seconds_expires_no_lease() -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    acquire("probe", "ahead", timedelta(seconds=20), clock=lambda: now + timedelta(seconds=10))
    assert acquire("probe", "behind", timedelta(seconds=20), clock=lambda: now) is None


def test_lease_longer_than_the_limit_is_rejected() -> None:
    with pytest.raises(ValueError, match="too long"):
        acquire("probe", "a", LONGEST + EVERY)


@JUMPS
def test_rounds_continue_and_stored_times_move_with_the_clock(world: World, jump: timedelta) -> None:
    ages: list[float] = []

    def remember(turn: Round) -> RoundResult:
        since_s = turn.memory.get("since_s", turn.now_s)
        ages.append(turn.now_s - since_s)
        return RoundResult({"since_s": since_s, "tokens": 1_800_000_000, "share": 0.5})

    run_rounds("remember", EVERY, remember, clock=world.clock)
    world.now += 2 * EVERY
    run_rounds("remember", EVERY, remember, clock=world.clock)
    world.now -= jump
    assert run_rounds("remember", EVERY, remember, clock=world.clock) == 1
    assert ages[:2] == [0.0, 10.0]
    assert ages[2] == pytest.approx(10.0, abs=EVERY.total_seconds())
    assert {**JobRun.objects.get().memory, "since_s": 0.0} == {"since_s": 0.0, "tokens": 1_800_000_000, "share": 0.5}


def test_only_times_are_moved() -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    memory = {"engines": {"e": {"flaps": [now.timestamp() - 60.0], "served": [3, 4], "text": "x", "gap_s": None}}}
    moved = moved_back(memory, timedelta(hours=1), now)
    assert moved["engines"]["e"] == {
        "flaps": [now.timestamp() - 3660.0],
        "served": [3, 4],
        "text": "x",
        "gap_s": None,
    }
    assert moved_back(memory, timedelta(), now) == memory


def _judge(world: World) -> None:
    world.pool.refresh_from_db()
    world.run(engine_health.JOB, engine_health.judge, engine_health.EVERY)


def _health(name: str) -> str:
    return EngineHealth.objects.get(engine__name=name).state


def _live(world: World, seconds: float) -> None:
    world.pass_time(seconds, after_step=lambda: _judge(world))


@JUMPS
def test_unhealthy_engine_is_quarantined_without_delay(world: World, jump: timedelta) -> None:
    _live(world, 10)
    world.now -= jump
    _live(world, 2)
    world.say("e-02", reachable=False, healthy=False, reason="connection refused")
    _live(world, 6)
    assert _health("e-02") == "quarantined"


@JUMPS
def test_quarantined_engine_returns_after_its_quarantine(world: World, jump: timedelta) -> None:
    _live(world, 5)
    world.say("e-02", reachable=False, healthy=False, reason="connection refused")
    _live(world, 6)
    assert _health("e-02") == "quarantined"
    world.now -= jump
    world.say("e-02", reachable=True, healthy=True, reason="")
    _live(world, 120)
    assert _health("e-02") == "healthy"


@JUMPS
def test_action_continues(world: World, monkeypatch: pytest.MonkeyPatch, jump: timedelta) -> None:
    class Stops:
        can_change_role = False
        keeps_engines = False

        def stop(self, _order: EngineAction) -> ActuatorAnswer:
            return ActuatorAnswer(ActionProgress.IN_EFFECT, "stopped")

    monkeypatch.setattr(engine_actions, "actuator_of", lambda _pool: Stops())
    request_stop(world.pool.engines.get(name="e-02"), actor=ACTOR, why="test", at=world.now)
    carry_out = partial(engine_actions.carry_out, observed=world.observed, clock=world.clock)

    def step() -> None:
        run_rounds(engine_actions.JOB, engine_actions.EVERY, carry_out, pools=[world.pool], clock=world.clock)

    world.pass_time(1, after_step=step)
    world.now -= jump
    world.pass_time(15, after_step=step)
    assert not EngineAction.objects.filter(state__in=OPEN_STATES).exists()


def _watch(made: ArmScene, count: int, *, slower: float) -> None:
    for slice_ in slices(1, count, 40, 6, slower=slower):
        made.report(slice_, ("live", 1), ("canary", 2))
        evaluate_canaries(made.intake, clock=made.clock)


@JUMPS
def test_regressing_canary_is_aborted_within_a_minute(pool: Pool, policy: Policy, bus: Bus, jump: timedelta) -> None:
    live_version(policy)
    canary = start_canary(version(policy, "round_robin"), actor=ACTOR)
    with arm_scene(canary.step_at) as made:
        _watch(made, 5, slower=1.0)
        made.now_s -= jump.total_seconds()
        _watch(made, 30, slower=5.0)
    canary.refresh_from_db()
    assert (canary.state, canary.ended_by) == ("aborted", "canary")


@JUMPS
def test_holdback_still_falls_back(pool: Pool, policy: Policy, bus: Bus, jump: timedelta) -> None:
    quick = {"share": 0.05, "hold_s": 10, "cool_down_s": 60}
    first = live_version(policy, automation={"holdback": quick})
    with arm_scene(first.created_at) as made:
        for number, slice_ in enumerate(slices(1, 40, 10, 20, slower=8.0)):
            if number == 2:
                made.now_s -= jump.total_seconds()
            made.report(slice_, ("control", 1), ("live", 1))
            evaluate_slices(made.intake, clock=made.clock)
    assert Holdback.objects.get().state != "slice"
