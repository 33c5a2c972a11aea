"""Performs the next step of one action: calls the actuator and applies its response.

A step claims the action by a conditional update, calls the actuator outside any transaction, and stores the response by
another conditional update, together with its effects on the topology. If the process dies during a step, no change is
stored: the action is retried after CLAIM, and the actuator recognizes it by its key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from controlplane.automation.actuators.actuator import (
    ActionProgress,
    Actuator,
    ActuatorAnswer,
    ActuatorError,
    NewEngine,
    RejectedActionError,
)
from controlplane.automation.engine_actions import audit_fields
from controlplane.automation.models.engine_action import ActionKind, ActionState, EngineAction
from controlplane.automation.observation import FleetObservation
from controlplane.fleet.engine_lifecycle import EngineNotEmptyError, delete_engine, set_desired_state
from controlplane.fleet.engine_registration import change_engine, checked_addresses, store_engine
from controlplane.fleet.engine_url import RejectedUrlError, UnresolvedHostError
from controlplane.fleet.models.engine import DesiredState, Engine
from controlplane.platform import audit
from controlplane.platform.actor import program
from controlplane.platform.field_problems import InvalidFieldsError
from routing.values.counted import count

CLAIM = timedelta(seconds=10)
"""Longer than any actuator call. If a process dies during a step, its action is delayed by this time."""
SETTLE = timedelta(seconds=2)
"""Time in which gateways receive a drain and report the remaining work."""
POLL = timedelta(seconds=1)
LONGEST_PAUSE = timedelta(seconds=30)
REPORT_COUNTS_S = 10.0
ROLE_CHANGED_AT = "role_changed_at"
GIVEN_UP = "given_up"
"""Key of the reason for giving up an action that is being undone."""
ACTOR = program("actuator")


class ClaimLostError(RuntimeError):
    """Another process has already advanced the action."""


@dataclass(frozen=True, slots=True)
class StepContext:
    """Dependencies of a step."""

    actuator: Actuator
    observed: FleetObservation
    clock: Callable[[], datetime]


def advance(action: EngineAction, context: StepContext) -> None:
    """Advance the action by one step. Do nothing if another process has claimed it."""
    now = context.clock()
    # Another process has claimed the action.
    if not _claim(action, now):
        return
    try:
        _step(action, context, now)
    except ClaimLostError:
        return
    except ActuatorError as error:
        # The attempts are kept, so that the pause grows.
        _move(action, says=str(error), next_try_at=now + _pause(action), attempts=action.attempts)


def _step(action: EngineAction, context: StepContext, now: datetime) -> None:
    # An undo may take several steps; the reason why the action was given up stays the first one.
    if GIVEN_UP in action.actuator_state:
        _give_up(action, action.actuator_state[GIVEN_UP], context, now)
    elif now > action.deadline_at:
        _give_up(action, f"gave up after {_span(action)}: {action.says or 'no progress'}", context, now)
    else:
        try:
            (_start if action.kind == ActionKind.START else _stop_or_change_role)(action, context, now)
        except RejectedActionError as error:
            _give_up(action, str(error), context, now)
        except (RejectedUrlError, InvalidFieldsError) as error:
            _give_up(action, f"the engine cannot be registered: {error}", context, now)


def _pause(action: EngineAction) -> timedelta:
    return min(LONGEST_PAUSE, timedelta(seconds=2 ** min(action.attempts, 6)))


def _start(action: EngineAction, context: StepContext, now: datetime) -> None:
    if action.engine is not None:
        if _serves(action.engine, context.observed, now.timestamp()):
            _finish(action, f"{action.engine_name} serves", now)
        else:
            _move(action, says=f"{action.engine_name} does not answer yet", next_try_at=now + POLL)
        return
    # A person, or a service that answers without an address, registers the engine by itself.
    registered = _registered_since(action)
    if registered is not None:
        _move(action, state=ActionState.SENT, engine=registered, engine_name=registered.name, next_try_at=now)
        return
    answer = context.actuator.start(action)
    changes = _after_answer(action, answer, now)
    try:
        # Before the transaction, which would hold its locks while the names are resolved.
        addresses = _addresses(answer.engine, action) if answer.engine is not None else {}
    except UnresolvedHostError as error:
        # A pod has no record in DNS before it is ready.
        changes |= {"says": f"{answer.says}; {error}", "next_try_at": now + _pause(action), "attempts": action.attempts}
        _move(action, state=ActionState.SENT, **changes)
        return
    with transaction.atomic():
        if answer.engine is not None:
            engine = _register(action, answer.engine, addresses)
            if engine.desired_state == DesiredState.ASLEEP:
                # It is awake by now, or gateways would send requests to a sleeping engine.
                set_desired_state(engine, DesiredState.READY, actor=ACTOR, why=action.why[:200])
            changes |= {"engine": engine, "engine_name": engine.name}
        _move(action, state=ActionState.SENT, **changes)


def _stop_or_change_role(action: EngineAction, context: StepContext, now: datetime) -> None:
    engine = action.engine
    if engine is None:
        _finish(action, f"{action.engine_name} is already gone", now)
    elif action.state == ActionState.WANTED:
        _drain(action, engine, now)
    # A person returned it to service, which wins over the plan. A change of role that is done sets the state, too.
    elif engine.desired_state == DesiredState.READY and ROLE_CHANGED_AT not in action.actuator_state:
        _finish(action, "the engine was returned to service", now, state=ActionState.CANCELLED)
    elif action.state == ActionState.DRAINING:
        _await_empty(action, engine, context, now)
    elif action.kind == ActionKind.STOP:
        _stop(action, engine, context, now)
    else:
        _change_role(action, engine, context, now)


def _drain(action: EngineAction, engine: Engine, now: datetime) -> None:
    with transaction.atomic():
        if engine.desired_state == DesiredState.READY:
            set_desired_state(engine, DesiredState.DRAINING, actor=ACTOR, why=action.why[:200])
        _move(action, state=ActionState.DRAINING, says="finishing its work", next_try_at=now + SETTLE)


def _await_empty(action: EngineAction, engine: Engine, context: StepContext, now: datetime) -> None:
    seen = context.observed.engines(action.pool.slug, now.timestamp()).get(engine.engine_id)
    # Unknown work is not zero work.
    left = seen[0].in_flight if seen is not None else None
    if left == 0 or (seen is not None and seen[0].lost):
        _move(action, state=ActionState.SENT, says="no work left", next_try_at=now)
    else:
        remainder = "no gateway reports what is" if left is None else count(left, "request is", "requests are")
        says = f"{remainder} left on it"
        _move(action, says=says, next_try_at=now + POLL)


def _stop(action: EngineAction, engine: Engine, context: StepContext, now: datetime) -> None:
    answer = context.actuator.stop(action)
    if answer.progress != ActionProgress.IN_EFFECT:
        _move(action, **_after_answer(action, answer, now))
        return
    with transaction.atomic():
        _finish(action, answer.says or f"{action.engine_name} is stopped", now)
        _take_out(engine, context, action.why)


def _change_role(action: EngineAction, engine: Engine, context: StepContext, now: datetime) -> None:
    role_changed_at = action.actuator_state.get(ROLE_CHANGED_AT)
    if role_changed_at is not None:
        # An earlier report may be of the process in its old role.
        if _serves(engine, context.observed, now.timestamp(), since_s=float(role_changed_at) + SETTLE.total_seconds()):
            _finish(action, f"{action.engine_name} serves as a {action.role} engine", now)
        else:
            _move(action, says=f"{action.engine_name} does not answer yet", next_try_at=now + POLL)
        return
    answer = context.actuator.change_role(action)
    changes = _after_answer(action, answer, now)
    with transaction.atomic():
        if answer.progress == ActionProgress.IN_EFFECT:
            change_engine(engine, {"role": action.role}, actor=ACTOR, why=action.why[:200])
            set_desired_state(engine, DesiredState.READY, actor=ACTOR, why=action.why[:200])
            changes["actuator_state"] = {**changes["actuator_state"], ROLE_CHANGED_AT: now.timestamp()}
        _move(action, **changes)


def _claim(action: EngineAction, now: datetime) -> bool:
    # One of the three changes with each claim and each step: of two processes that read the action, one gets it.
    as_seen = {"state": action.state, "attempts": action.attempts, "next_try_at": action.next_try_at}
    claimed = EngineAction.objects.filter(pk=action.pk, **as_seen).update(
        attempts=action.attempts + 1, next_try_at=now + CLAIM
    )
    action.attempts += claimed
    action.next_try_at = now + CLAIM
    return bool(claimed)


def _move(action: EngineAction, **changes: Any) -> None:
    """Change the action if the claim is still valid. Raises ClaimLostError."""
    if "says" in changes:
        changes["says"] = changes["says"][:300]
    # Any answer resets the pause: the next failure begins with a short one.
    changes.setdefault("attempts", 0)
    held = EngineAction.objects.filter(
        pk=action.pk, state=action.state, attempts=action.attempts, next_try_at=action.next_try_at
    )
    if not held.update(**changes):
        raise ClaimLostError
    for name, value in changes.items():
        setattr(action, name, value)


def _finish(action: EngineAction, says: str, now: datetime, *, state: ActionState = ActionState.DONE) -> None:
    before = audit_fields(action)
    with transaction.atomic():
        _move(action, state=state, says=says, finished_at=now)
        audit.record_for(ACTOR, f"engine_action.{state}", action, before=before, after=audit_fields(action))


def _give_up(action: EngineAction, says: str, context: StepContext, now: datetime) -> None:
    """End the action as failed and clean up: remove engines without a process, and end drains."""
    engine = action.engine
    if action.kind == ActionKind.START:
        # It began to serve at the last moment, and is wanted.
        if engine is not None and _serves(engine, context.observed, now.timestamp()):
            _finish(action, f"{action.engine_name} serves", now)
            return
        answer = _undo(action, context)
        if answer.progress != ActionProgress.IN_EFFECT:
            _move(
                action,
                **{
                    **_after_answer(action, answer, now),
                    "actuator_state": {**action.actuator_state, **answer.actuator_state, GIVEN_UP: says},
                },
            )
            return
        says = f"{says}; {answer.says}" if answer.says else says
    with transaction.atomic():
        _finish(action, says, now, state=ActionState.FAILED)
        if engine is None:
            return
        if action.kind == ActionKind.START:
            # An engine that takes work is not deleted.
            set_desired_state(engine, DesiredState.MAINTENANCE, actor=ACTOR, why=says[:200])
            _take_out(engine, context, says)
        elif engine.desired_state == DesiredState.DRAINING:
            set_desired_state(engine, DesiredState.READY, actor=ACTOR, why=says[:200])


def _undo(action: EngineAction, context: StepContext) -> ActuatorAnswer:
    try:
        return context.actuator.undo(action)
    except RejectedActionError as error:
        # Asking again would not change it, and the action would never end.
        return ActuatorAnswer(ActionProgress.IN_EFFECT, f"not canceled: {error}")


def _take_out(engine: Engine, context: StepContext, why: str) -> None:
    if context.actuator.keeps_engines:
        set_desired_state(engine, DesiredState.ASLEEP, actor=ACTOR, why=why[:200])
        return
    try:
        delete_engine(engine, actor=ACTOR, in_flight=0, why=why[:200])
    except EngineNotEmptyError as error:
        # It was returned to service at the last moment, which ends the action's hold on it.
        raise ClaimLostError from error


def _after_answer(action: EngineAction, answer: ActuatorAnswer, now: datetime) -> dict[str, Any]:
    return {
        "says": answer.says,
        "actuator_state": {**action.actuator_state, **answer.actuator_state},
        "next_try_at": now + POLL,
    }


def _addresses(wanted: NewEngine, action: EngineAction) -> dict[str, str]:
    """Return the new engine's addresses, checked and resolved. Raises RejectedUrlError."""
    return checked_addresses(
        {
            "url": wanted.url,
            "kv_events_endpoint": wanted.kv_events_endpoint,
            "kv_replay_endpoint": wanted.kv_replay_endpoint,
        },
        action.pool,
    )


def _register(action: EngineAction, wanted: NewEngine, addresses: Mapping[str, str]) -> Engine:
    """Register the engine under its action's key and return it. Adopt an engine that already has the same address."""
    there = Engine.objects.filter(pool=action.pool, url=addresses["url"]).first()
    if there is not None:
        return there
    return store_engine(
        action.pool,
        wanted.name,
        addresses,
        actor=ACTOR,
        role=action.role,
        engine_id=action.key,
        supervised=wanted.supervised,
        kv_node=wanted.kv_node,
        why=action.why[:200],
    )


def _registered_since(action: EngineAction) -> Engine | None:
    """Return an engine of the action's role that was registered after the action and belongs to no other action."""
    if action.state != ActionState.SENT:
        return None
    engine: Engine | None = (
        Engine.objects.filter(pool=action.pool, role=action.role, registered_at__gt=action.requested_at, actions=None)
        .order_by("registered_at", "pk")
        .first()
    )
    return engine


def _serves(engine: Engine, observed: FleetObservation, now_s: float, since_s: float = 0.0) -> bool:
    report = observed.report(engine.engine_id)
    return report is not None and report.serves and report.at >= max(since_s, now_s - REPORT_COUNTS_S)


def _span(action: EngineAction) -> str:
    minutes = (action.deadline_at - action.requested_at).total_seconds() / 60
    return f"{minutes:.0f} min"
