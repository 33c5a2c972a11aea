"""Turns a plan into the orders that carry it out: engines to start, stop, and change."""

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
"""Limit of orders that wait for a person."""
MAX_OPEN = 1000
"""Open orders of one pool; more are not placed."""


def order_scaling(
    pool: Pool, add: Iterable[str], drain: Sequence[str], *, actor: Actor, why: str, at: datetime
) -> list[EngineAction]:
    """Order an engine for each role in `add` and the end of each engine in `drain`; return the new orders.

    Engines that are gone, or have an open order, are skipped. Call inside a transaction.
    """
    placed = [order_start(pool, role, actor=actor, why=why, at=at) for role in add]
    engines = engines_by_id(pool, drain)
    placed += [order_stop(engines[item], actor=actor, why=why, at=at) for item in drain if item in engines]
    return [order for order in placed if order is not None]


def order_flips(
    pool: Pool, flips: Sequence[tuple[str, str]], *, actor: Actor, why: str, at: datetime
) -> list[EngineAction]:
    """Order each (engine id, role after); return the new orders. Call inside a transaction.

    Where the actuator cannot flip an engine, one of the other role starts and this one stops.
    """
    turns = actuator_of(pool).can_flip
    engines = engines_by_id(pool, [engine_id for engine_id, _ in flips])
    placed: list[EngineAction | None] = []
    for engine_id, role in flips:
        engine = engines.get(engine_id)
        if engine is None:
            continue
        if turns:
            placed.append(order_flip(engine, role, actor=actor, why=why, at=at))
        # Without the stop there is no start, or the pool would grow.
        elif (stop := order_stop(engine, actor=actor, why=why, at=at)) is not None:
            placed += [stop, order_start(pool, role, actor=actor, why=why, at=at)]
    return [order for order in placed if order is not None]


def order_start(pool: Pool, role: str, *, actor: Actor, why: str, at: datetime) -> EngineAction | None:
    """Place an order for one more engine and return it; None where MAX_OPEN are open. Call inside a transaction."""
    if EngineAction.objects.filter(pool=pool, state__in=OPEN_STATES).count() >= MAX_OPEN:
        return None
    return _order_action(pool, ActionKind.START, role, None, actor, why, at)


def order_stop(engine: Engine, *, actor: Actor, why: str, at: datetime) -> EngineAction | None:
    """Place an order to drain and stop the engine; None where another order for it is open."""
    return _order_for(engine, ActionKind.STOP, engine.role, actor, why, at)


def order_flip(engine: Engine, role: str, *, actor: Actor, why: str, at: datetime) -> EngineAction | None:
    """Place an order to drain the engine and bring it back in another role; None where another order is open."""
    return _order_for(engine, ActionKind.FLIP, role, actor, why, at)


def _order_for(
    engine: Engine, kind: ActionKind, role: str, actor: Actor, why: str, at: datetime
) -> EngineAction | None:
    if EngineAction.objects.filter(engine=engine, state__in=OPEN_STATES).exists():
        return None
    try:
        # A savepoint: the error must not end the transaction of the round.
        with transaction.atomic():
            return _order_action(engine.pool, kind, role, engine, actor, why, at)
    except IntegrityError:
        # Another worker placed one at the same moment.
        return None


def _order_action(
    pool: Pool, kind: ActionKind, role: str, engine: Engine | None, actor: Actor, why: str, at: datetime
) -> EngineAction:
    within = START_WITHIN if kind == ActionKind.START else STOP_WITHIN
    order = EngineAction.objects.create(
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
        ordered_at=at,
    )
    wake(["engine_actions"])
    audit.record_for(actor, f"engine_action.{kind}", order, after=audit_fields(order), why=why)
    return order
