"""The plan history stores relevant plans within its limits.

Following advice executes the changes of the last plan once, and no outdated changes.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from controlplane.automation import plan_history, switches
from controlplane.automation.models.engine_action import EngineAction
from controlplane.automation.models.plan_record import PlanRecord
from controlplane.automation.plan_advice import AdviceError, advice_key, follow_advice
from controlplane.automation.plan_history import EVERY, KEPT, forget_plans, planned
from controlplane.automation.rounds import Round
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import program
from controlplane.platform.jobs.lease import Lease
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.models.job_run import JobRun, JobState
from planning.facts.reason import Reason
from tests.controlplane.automation.conftest import world
from tests.controlplane.automation.world import World

pytestmark = pytest.mark.django_db

START = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


class Plan(msgspec.Struct):
    reasons: tuple[Reason, ...]


def keep(after_s: float, code: str = "calm", *, changes: bool = False, mode: str = "act", pool: str = "p") -> bool:
    at = START + timedelta(seconds=after_s)
    turn = Round(Pool(slug=pool), Lease(1, "tests", 1, at), {}, at)
    result = planned(
        turn,
        "scaling",
        Plan((Reason(code, f"{code}."),)),
        Plan(()),
        mode=mode,
        changes=changes,
        carried_out=changes,
        inputs={},
        figures={},
        outcome={},
    )
    for effect in result.effects:
        effect()
    assert (result.outcome["mode"], result.outcome["reason"]) == (mode, f"{code}.")
    return bool(result.effects)


def test_plans_with_changes_new_reasons_or_new_modes_and_one_a_minute_are_stored() -> None:
    assert keep(0)
    assert not keep(5)
    assert keep(10, "queue")
    assert keep(15, "queue", changes=True)
    assert keep(20, "queue", mode="frozen")
    assert not keep(25, "queue", mode="frozen")
    assert keep(20 + EVERY.total_seconds(), "queue", mode="frozen")


def test_history_is_limited_by_age_and_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_history, "MAX_ROWS", 3)
    for minute in range(6):
        keep(60.0 * minute)
        keep(60.0 * minute, pool="q")
    assert forget_plans(START + timedelta(minutes=10)) == 6
    kept = list(PlanRecord.objects.filter(pool="p").values_list("at", flat=True))
    assert kept == [START + timedelta(minutes=minute) for minute in (5, 4, 3)]
    assert forget_plans(START + KEPT + timedelta(days=1)) == 6
    assert not PlanRecord.objects.exists()


__all__ = ["world"]


ACTOR = program("tests")
ADD = {"add": ["mixed", "mixed"], "drain": [], "reasons": [{"code": "violation", "text": "too many are late"}]}


def advise(world: World, plan: dict[str, object], job: str = "scaling", mode: str = "advise") -> str:
    """Store a round from two seconds ago, and return the key of its advice."""
    made = {"at_s": world.unix() - 2, **plan}
    JobRun.objects.create(
        job=job, shard=world.pool.pk, state=JobState.ACTIVE, started_at=world.now, plan=made, outcome={"mode": mode}
    )
    return advice_key(job, made)


def follow(world: World, key: str, job: str = "scaling") -> list[EngineAction]:
    pool = Pool.objects.select_related("policy__live_version", "automation").get(pk=world.pool.pk)
    return follow_advice(pool, job, key, actor=ACTOR, at=world.now, why="agreed")


def test_engines_are_added_as_advised_and_the_audit_names_the_operator(world: World) -> None:
    key = advise(world, ADD)
    assert key == "+mixed,+mixed"
    actions = follow(world, key)
    assert [(action.kind, action.role, action.by) for action in actions] == [("start", "mixed", "tests")] * 2
    event = AuditEvent.objects.get(verb="pool.follow_advice")
    assert (event.why, event.after["advice"]) == ("agreed", key)


def test_advised_engine_is_drained_and_a_deleted_one_is_skipped(world: World) -> None:
    key = advise(world, {"add": [], "drain": ["e-01", "gone"], "reasons": []})
    assert [(action.kind, action.engine_name) for action in follow(world, key)] == [("stop", "e-01")]


def test_role_change_becomes_stop_and_start_if_the_actuator_cannot_change_roles(world: World) -> None:
    Engine.objects.filter(engine_id="e-01").update(role="prefill")
    role_changes = [{"engine_id": "e-01", "before": "prefill", "after": "decode"}]
    sets = {"prefill": "vllm-prefill", "decode": "vllm-decode", "mixed": "vllm"}
    Pool.objects.update(actuator="kubernetes", actuator_settings={"namespace": "llm", "stateful_sets": sets})
    key = advise(world, {"role_changes": role_changes, "reasons": []}, job="prefill_decode")
    actions = follow(world, key, "prefill_decode")
    assert [(action.kind, action.role) for action in actions] == [("stop", "prefill"), ("start", "decode")]


def test_advice_is_not_followed_twice(world: World) -> None:
    key = advise(world, ADD)
    follow(world, key)
    with pytest.raises(AdviceError, match="started since"):
        follow(world, key)
    assert EngineAction.objects.count() == 2


def test_changed_advice_is_not_followed(world: World) -> None:
    advise(world, ADD)
    with pytest.raises(AdviceError, match="advice has changed"):
        follow(world, "+mixed")


def test_old_advice_is_not_followed(world: World) -> None:
    key = advise(world, ADD)
    world.now += timedelta(minutes=1)
    with pytest.raises(AdviceError, match="has no recent plan"):
        follow(world, key)


@pytest.mark.parametrize("mode", ["act", "frozen", "off"])
def test_plan_in_another_mode_than_advise_is_not_followed(world: World, mode: str) -> None:
    key = advise(world, ADD, mode=mode)
    with pytest.raises(AdviceError, match="not advising"):
        follow(world, key)


def test_frozen_pool_follows_no_advice(world: World) -> None:
    key = advise(world, ADD)
    switches.freeze(world.pool, actor=ACTOR)
    with pytest.raises(AdviceError, match="Unfreeze it first"):
        follow(world, key)
    assert not EngineAction.objects.exists()


def test_health_and_rebalancing_give_no_advice_that_becomes_actions(world: World) -> None:
    assert advice_key("engine_health", {"changed": ["e-01"]}) == ""
    with pytest.raises(AdviceError):
        follow(world, "", "rebalance")
