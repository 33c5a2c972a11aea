"""Actions that start and stop engines and change their roles, and the operations that people perform on them."""

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
"""Maximum number of engine names kept by `started_names`, newest first."""


class EngineActionError(ConflictError):
    """The action's state does not allow the operation. The message explains why."""


def started_names(pool: Pool) -> dict[str, str]:
    """Return engine id → name of recently started engines, so that plans can name deleted engines."""
    started = EngineAction.objects.filter(pool=pool, kind=ActionKind.START).exclude(engine_name="")
    return dict(started.order_by("-requested_at").values_list("key", "engine_name")[:MAX_NAMES])


def confirm(action: EngineAction, *, actor: Actor, why: str = "") -> EngineAction:
    """Record that a person carried out the action. A START is matched with the newly registered engine.

    Raises NotAllowedError, and EngineActionError if the action needs no person or its engine still accepts work.
    """
    require(actor, Role.OPERATOR, action.pool)
    with transaction.atomic():
        stored = _locked(action)
        if stored.pool.actuator != ActuatorKind.MANUAL or stored.state != ActionState.SENT:
            raise EngineActionError("This action is not waiting for confirmation; check its state.")
        return _answer(
            stored,
            {"actuator_state": {**stored.actuator_state, "confirmed_by": actor.name}},
            "engine_action.confirm",
            actor,
            why,
        )


def withdraw(action: EngineAction, *, actor: Actor, why: str = "") -> EngineAction:
    """Withdraw an open action. An engine that it drains accepts new work again.

    Raises NotAllowedError, and EngineActionError if the action has ended or the actuator has begun it.
    """
    require(actor, Role.OPERATOR, action.pool)
    with transaction.atomic():
        stored = _locked(action)
        by_hand = stored.pool.actuator == ActuatorKind.MANUAL
        if stored.state not in OPEN_STATES or (stored.state == ActionState.SENT and not by_hand):
            raise EngineActionError(f"This action is {stored.state}; it cannot be canceled.")
        return _withdraw(stored, actor, why)


def withdraw_waiting(pool: Pool, *, actor: Actor, why: str) -> int:
    """Withdraw all actions of the pool that the actuator has not begun. Return how many."""
    waiting = EngineAction.objects.select_for_update().filter(
        pool=pool, state__in=(ActionState.WANTED, ActionState.DRAINING)
    )
    for action in waiting.select_related("pool"):
        _withdraw(action, actor, why)
    return len(waiting)


def forget_actions(now: datetime) -> int:
    """Delete actions that ended longer than KEPT ago. Return how many."""
    return EngineAction.objects.filter(finished_at__lt=now - KEPT).delete()[0]


def open_actions(pools: Collection[Pool]) -> QuerySet[EngineAction]:
    """Return the open actions of these pools, oldest first."""
    actions = EngineAction.objects.filter(pool__in=pools, state__in=OPEN_STATES)
    return actions.select_related("pool", "engine").order_by("requested_at", "pk")


def audit_fields(action: EngineAction) -> dict[str, Any]:
    """Return the action's fields in the form recorded in the audit."""
    return {
        "kind": action.kind,
        "role": action.role,
        "engine": action.engine_name,
        "state": action.state,
        "says": action.says,
    }


def _withdraw(action: EngineAction, actor: Actor, why: str) -> EngineAction:
    engine = action.engine
    if engine is not None and action.kind != ActionKind.START and engine.desired_state == DesiredState.DRAINING:
        set_desired_state(engine, DesiredState.READY, actor=actor, why=why)
    ended = {"state": ActionState.CANCELLED, "finished_at": timezone.now(), "says": f"canceled by {actor.name}"}
    return _answer(action, ended, "engine_action.withdraw", actor, why)


def _answer(action: EngineAction, changes: dict[str, Any], verb: str, actor: Actor, why: str) -> EngineAction:
    before = audit_fields(action)
    if not EngineAction.objects.filter(pk=action.pk, state=action.state).update(**changes):
        raise EngineActionError("This action just changed; reload it.")
    action.refresh_from_db()
    audit.record_for(actor, verb, action, before=before, after=audit_fields(action), why=why)
    return action


def _locked(action: EngineAction) -> EngineAction:
    stored: EngineAction = (
        # Of the action alone: an action may have no engine, and PostgreSQL locks no nullable side of a join.
        EngineAction.objects.select_for_update(of=("self",)).select_related("pool", "engine__pool").get(pk=action.pk)
    )
    return stored
