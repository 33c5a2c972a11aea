"""Engine health: observe the engines' progress, judge it, and apply the verdicts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

import msgspec
from celery import shared_task
from django.db.models import QuerySet

from controlplane.automation.engine_verdicts import BY_HAND, held_by_hand, put_verdict
from controlplane.automation.models.engine_health import EngineHealth, HealthState
from controlplane.automation.observation import FleetObservation, fleet_observation
from controlplane.automation.plan_history import planned
from controlplane.automation.pool_facts import engines_by_id, pool_facts
from controlplane.automation.pool_policy import FROZEN, mode_in_force, pool_policy
from controlplane.automation.rounds import Round, RoundResult, run_rounds
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import program
from planning.documents.automation_mode import ACT, OFF
from planning.documents.health_document import HealthDocument
from planning.engine_health.engine_health import plan_health
from planning.engine_health.health_memory import HealthMemory
from planning.engine_health.health_verdict import HealthPlan, HealthVerdict
from routing.values.prepared_struct import prepared

JOB = "engine_health"
EVERY = timedelta(seconds=1)
ACTOR = program("engine health")


@shared_task(name="controlplane.engine_health", ignore_result=True)
def engine_health() -> None:
    """Run every second: one round of each pool that is due."""
    run_rounds(JOB, EVERY, partial(judge, observed=fleet_observation()))


def judge(turn: Round, *, observed: FleetObservation) -> RoundResult:
    """Return the result of one round for one pool."""
    policy = pool_policy(turn.pool)
    settings = policy.automation.health
    mode = mode_in_force(turn.pool, settings.mode)
    if mode == OFF:
        return RoundResult({}, outcome={"mode": mode}, effects=[partial(_readmit_all, turn.pool, turn.at)])
    facts = pool_facts(turn.pool, policy.routing, observed, turn.now_s)
    memory = msgspec.convert(turn.memory, prepared(HealthMemory))
    plan, after = plan_health(facts, memory, settings, newcomer_slow_start_s=policy.automation.scaling.slow_start_s)
    states: list[str] = [verdict.state for verdict in plan.verdicts]
    result = planned(
        turn,
        JOB,
        plan,
        after,
        mode=mode,
        changes=bool(plan.changed),
        carried_out=mode == ACT,
        inputs={"engines": len(facts.engines), "gateways": observed.gateways(turn.now_s)},
        figures={state: states.count(state) for state in HealthState.values} | {"panic": int(plan.panic)},
        outcome={"changed": list(plan.changed)},
        stored=_shown_plan(plan),
    )
    if mode == ACT:
        result.effects.append(partial(_put, turn, plan.verdicts, settings))
    # A frozen pool keeps the verdicts that it has: freezing must not send work to a sick engine.
    elif mode != FROZEN:
        result.effects.append(partial(_readmit_all, turn.pool, turn.at))
    return result


def _put(turn: Round, verdicts: tuple[HealthVerdict, ...], settings: HealthDocument) -> None:
    """Apply every verdict that is not in force yet, including those of an earlier round."""
    stored = {row.engine.engine_id: row for row in _stored(turn.pool)}
    free = [item for item in verdicts if not held_by_hand(stored.get(item.engine_id), turn.at)]
    news = [item for item in free if _is_news(item, stored.get(item.engine_id))]
    engines = engines_by_id(turn.pool, [item.engine_id for item in news])
    for verdict in news:
        engine = engines.get(verdict.engine_id)
        if engine is not None:
            _put_one(engine, verdict, settings)


def _put_one(engine: Engine, verdict: HealthVerdict, settings: HealthDocument) -> None:
    returns = verdict.state == HealthState.PROBATION.value
    put_verdict(
        engine,
        verdict.state,
        actor=ACTOR,
        since=_moment(verdict.since_s),
        code=verdict.code,
        reason=verdict.text,
        until=_moment(verdict.until_s) if verdict.until_s is not None else None,
        slow_start_from=settings.slow_start_from if returns else 1.0,
        slow_start_s=verdict.slow_start_s if returns else 0.0,
    )


def _is_news(verdict: HealthVerdict, stored: EngineHealth | None) -> bool:
    if stored is None:
        return verdict.state != HealthState.HEALTHY.value
    return (stored.state, stored.code) != (verdict.state, verdict.code)


def _readmit_all(pool: Pool, at: datetime) -> None:
    """Readmit all engines that no person excluded, because none is watched while the automation is inactive."""
    for row in _stored(pool).exclude(state=HealthState.HEALTHY).exclude(code=BY_HAND):
        put_verdict(row.engine, HealthState.HEALTHY, actor=ACTOR, since=at)


def _stored(pool: Pool) -> QuerySet[EngineHealth]:
    return EngineHealth.objects.filter(engine__pool=pool).select_related("engine__pool")


def _shown_plan(plan: HealthPlan) -> dict[str, object]:
    """Return the plan without the verdicts on healthy engines."""
    fields: dict[str, object] = msgspec.to_builtins(plan)
    fields["verdicts"] = [
        msgspec.to_builtins(verdict) for verdict in plan.verdicts if verdict.state != HealthState.HEALTHY.value
    ]
    return fields


def _moment(unix_s: float) -> datetime:
    return datetime.fromtimestamp(unix_s, UTC)
