"""Orders to start, stop and flip engines, as operators see and answer them."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from controlplane.automation.models.engine_action import OPEN_STATES, ActionKind, ActionState, EngineAction
from controlplane.fleet.engine_lifecycle import set_desired_state
from controlplane.fleet.models.engine import DesiredState
from controlplane.fleet.models.pool import ActuatorKind, Pool
from controlplane.platform import audit
from controlplane.platform.actor import Actor
from controlplane.platform.conflict import ConflictError
from controlplane.platform.role import Role
from controlplane.platform.roles import require

KEPT = timedelta(days=30)
MAX_NAMES = 500
"""Names of engines started by order that are kept, the newest."""


class EngineActionError(ConflictError):
    """The order's state does not allow the answer; the message says why."""


def ordered_names(pool: Pool) -> dict[str, str]:
    """Return by id the names of engines started by order lately; plans name them after they are gone."""
    started = EngineAction.objects.filter(pool=pool, kind=ActionKind.START).exclude(engine_name="")
    return dict(started.order_by("-ordered_at").values_list("key", "engine_name")[:MAX_NAMES])


def confirm(order: EngineAction, *, actor: Actor, why: str = "") -> EngineAction:
    """Record that a person did what the order asks for; a START is then matched with the engine that was registered.

    Raises NotAllowedError, and EngineActionError for an order that asks for no person, or whose engine still takes
    work.
    """
    require(actor, Role.OPERATOR, order.pool)
    with transaction.atomic():
        stored = _locked(order)
        if stored.pool.actuator != ActuatorKind.MANUAL or stored.state != ActionState.SENT:
            raise EngineActionError("This action is not waiting for confirmation; check its state.")
        return _answer(
            stored,
            {"actuator_state": {**stored.actuator_state, "confirmed_by": actor.name}},
            "engine_action.confirm",
            actor,
            why,
        )


def withdraw(order: EngineAction, *, actor: Actor, why: str = "") -> EngineAction:
    """Withdraw an open order; an engine that drains for it takes work again.

    Raises NotAllowedError, and EngineActionError for an order that has ended, or that the actuator has begun.
    """
    require(actor, Role.OPERATOR, order.pool)
    with transaction.atomic():
        stored = _locked(order)
        by_hand = stored.pool.actuator == ActuatorKind.MANUAL
        if stored.state not in OPEN_STATES or (stored.state == ActionState.SENT and not by_hand):
            raise EngineActionError(f"This action is {stored.state}; it cannot be canceled.")
        return _withdraw(stored, actor, why)


def withdraw_waiting(pool: Pool, *, actor: Actor, why: str) -> int:
    """Withdraw all orders of the pool that the actuator has not begun, and return how many."""
    waiting = EngineAction.objects.select_for_update().filter(
        pool=pool, state__in=(ActionState.WANTED, ActionState.DRAINING)
    )
    for order in waiting.select_related("pool"):
        _withdraw(order, actor, why)
    return len(waiting)


def forget_orders(now: datetime) -> int:
    """Delete orders that ended KEPT ago, and return how many."""
    return EngineAction.objects.filter(finished_at__lt=now - KEPT).delete()[0]


def open_orders(pools: Collection[Pool]) -> QuerySet[EngineAction]:
    """Return the open orders of these pools, oldest first."""
    orders = EngineAction.objects.filter(pool__in=pools, state__in=OPEN_STATES)
    return orders.select_related("pool", "engine").order_by("ordered_at", "pk")


def audit_fields(order: EngineAction) -> dict[str, Any]:
    """Return the order's fields as the audit records them."""
    return {
        "kind": order.kind,
        "role": order.role,
        "engine": order.engine_name,
        "state": order.state,
        "says": order.says,
    }


def _withdraw(order: EngineAction, actor: Actor, why: str) -> EngineAction:
    engine = order.engine
    if engine is not None and order.kind != ActionKind.START and engine.desired_state == DesiredState.DRAINING:
        set_desired_state(engine, DesiredState.READY, actor=actor, why=why)
    ended = {"state": ActionState.CANCELLED, "finished_at": timezone.now(), "says": f"canceled by {actor.name}"}
    return _answer(order, ended, "engine_action.withdraw", actor, why)


def _answer(order: EngineAction, changes: dict[str, Any], verb: str, actor: Actor, why: str) -> EngineAction:
    before = audit_fields(order)
    if not EngineAction.objects.filter(pk=order.pk, state=order.state).update(**changes):
        raise EngineActionError("This action just changed; reload it.")
    order.refresh_from_db()
    audit.record_for(actor, verb, order, before=before, after=audit_fields(order), why=why)
    return order


def _locked(order: EngineAction) -> EngineAction:
    stored: EngineAction = (
        # Of the order alone: an order may have no engine, and PostgreSQL locks no nullable side of a join.
        EngineAction.objects.select_for_update(of=("self",)).select_related("pool", "engine__pool").get(pk=order.pk)
    )
    return stored
