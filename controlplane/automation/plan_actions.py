"""Turns a plan into actions that start, stop, and change engines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction

from controlplane.automation.actuators.registry import actuator_of
from controlplane.automation.engine_actions import audit_fields
from controlplane.automation.models.engine_action import OPEN_STATES, ActionKind, EngineAction
from controlplane.automation.pool_facts import engines_by_id
from controlplane.fleet.models.engine import Engine, new_engine_id
from controlplane.fleet.models.pool import ActuatorKind, Pool
from controlplane.platform import audit
from controlplane.platform.actor import Actor
from controlplane.platform.jobs.wake import wake

START_WITHIN = timedelta(minutes=15)
STOP_WITHIN = timedelta(minutes=30)
BY_HAND_WITHIN = timedelta(days=1)
"""Time limit of actions that wait for a person."""
MAX_OPEN = 1000
"""Maximum number of open actions of one pool."""


def request_scaling(
    pool: Pool, add: Iterable[str], drain: Sequence[str], *, actor: Actor, why: str, at: datetime
) -> list[EngineAction]:
    """Request a start for each role in `add` and a stop of each engine in `drain`. Return the new actions.

    Engines that were deleted or have an open action are skipped. Call inside a transaction.
    """
    created = [request_start(pool, role, actor=actor, why=why, at=at) for role in add]
    engines = engines_by_id(pool, drain)
    created += [request_stop(engines[item], actor=actor, why=why, at=at) for item in drain if item in engines]
    return [action for action in created if action is not None]


def request_role_changes(
    pool: Pool, role_changes: Sequence[tuple[str, str]], *, actor: Actor, why: str, at: datetime
) -> list[EngineAction]:
    """Request each role change (engine id, new role). Return the new actions. Call inside a transaction.

    If the actuator cannot change roles, an engine of the new role is started and this engine is stopped.
    """
    changes_roles = actuator_of(pool).can_change_role
    engines = engines_by_id(pool, [engine_id for engine_id, _ in role_changes])
    created: list[EngineAction | None] = []
    for engine_id, role in role_changes:
        engine = engines.get(engine_id)
        if engine is None:
            continue
        if changes_roles:
            created.append(request_role_change(engine, role, actor=actor, why=why, at=at))
        # Without the stop there is no start, or the pool would grow.
        elif (stop := request_stop(engine, actor=actor, why=why, at=at)) is not None:
            created += [stop, request_start(pool, role, actor=actor, why=why, at=at)]
    return [action for action in created if action is not None]


def request_start(pool: Pool, role: str, *, actor: Actor, why: str, at: datetime) -> EngineAction | None:
    """Create the action that starts one more engine; None if MAX_OPEN actions are open. Call inside a transaction."""
    if EngineAction.objects.filter(pool=pool, state__in=OPEN_STATES).count() >= MAX_OPEN:
        return None
    return _request(pool, ActionKind.START, role, None, actor, why, at)


def request_stop(engine: Engine, *, actor: Actor, why: str, at: datetime) -> EngineAction | None:
    """Create the action that drains and stops the engine; None if another action for it is open."""
    return _request_for(engine, ActionKind.STOP, engine.role, actor, why, at)


def request_role_change(engine: Engine, role: str, *, actor: Actor, why: str, at: datetime) -> EngineAction | None:
    """Create the action that drains the engine and restarts it in another role; None if another action is open."""
    return _request_for(engine, ActionKind.CHANGE_ROLE, role, actor, why, at)


def _request_for(
    engine: Engine, kind: ActionKind, role: str, actor: Actor, why: str, at: datetime
) -> EngineAction | None:
    if EngineAction.objects.filter(engine=engine, state__in=OPEN_STATES).exists():
        return None
    try:
        # A savepoint: the error must not end the transaction of the round.
        with transaction.atomic():
            return _request(engine.pool, kind, role, engine, actor, why, at)
    except IntegrityError:
        # Another worker created one at the same moment.
        return None


def _request(
    pool: Pool, kind: ActionKind, role: str, engine: Engine | None, actor: Actor, why: str, at: datetime
) -> EngineAction:
    within = START_WITHIN if kind == ActionKind.START else STOP_WITHIN
    action = EngineAction.objects.create(
        key=new_engine_id(),
        pool=pool,
        kind=kind,
        role=role,
        engine=engine,
        engine_name=engine.name if engine is not None else "",
        by=actor.name,
        why=why[:300],
        next_try_at=at,
        deadline_at=at + (BY_HAND_WITHIN if pool.actuator == ActuatorKind.MANUAL else within),
        requested_at=at,
    )
    wake(["engine_actions"])
    audit.record_for(actor, f"engine_action.{kind}", action, after=audit_fields(action), why=why)
    return action
