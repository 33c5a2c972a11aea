"""The next step of one order: the call to the actuator, and the changes that its answer makes.

A step claims the order by a conditional update, calls the actuator outside any transaction, and stores the answer by
another conditional update, together with its effects on the topology. A process that dies in between has changed
nothing here: the order is retried after CLAIM, and the actuator recognizes it by its key.
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
"""Longer than any call of an actuator; a process that dies with a claim delays its order by this."""
SETTLE = timedelta(seconds=2)
"""After this time gateways have received a drain and reported the remaining work."""
POLL = timedelta(seconds=1)
LONGEST_PAUSE = timedelta(seconds=30)
REPORT_COUNTS_S = 10.0
FLIPPED_AT = "flipped_at"
GIVEN_UP = "given_up"
"""Key of the reason why an order that is being undone was given up."""
ACTOR = program("actuator")


class ClaimLostError(RuntimeError):
    """Another process has advanced the order."""


@dataclass(frozen=True, slots=True)
class Hands:
    """Dependencies of a step."""

    actuator: Actuator
    observed: FleetObservation
    clock: Callable[[], datetime]


def advance(order: EngineAction, hands: Hands) -> None:
    """Advance the order by one step; one that another process has claimed is left to it."""
    now = hands.clock()
    # Another process has claimed the order.
    if not _claim(order, now):
        return
    try:
        _step(order, hands, now)
    except ClaimLostError:
        return
    except ActuatorError as error:
        # The attempts are kept, so that the pause grows.
        _move(order, says=str(error), next_try_at=now + _pause(order), attempts=order.attempts)


def _step(order: EngineAction, hands: Hands, now: datetime) -> None:
    # An undo may take several steps; the reason why the order was given up stays the first one.
    if GIVEN_UP in order.actuator_state:
        _give_up(order, order.actuator_state[GIVEN_UP], hands, now)
    elif now > order.deadline_at:
        _give_up(order, f"gave up after {_span(order)}: {order.says or 'no progress'}", hands, now)
    else:
        try:
            (_start if order.kind == ActionKind.START else _stop_or_flip)(order, hands, now)
        except RejectedActionError as error:
            _give_up(order, str(error), hands, now)
        except (RejectedUrlError, InvalidFieldsError) as error:
            _give_up(order, f"the engine cannot be registered: {error}", hands, now)


def _pause(order: EngineAction) -> timedelta:
    return min(LONGEST_PAUSE, timedelta(seconds=2 ** min(order.attempts, 6)))


def _start(order: EngineAction, hands: Hands, now: datetime) -> None:
    if order.engine is not None:
        if _serves(order.engine, hands.observed, now.timestamp()):
            _finish(order, f"{order.engine_name} serves", now)
        else:
            _move(order, says=f"{order.engine_name} does not answer yet", next_try_at=now + POLL)
        return
    # A person, or a service that answers without an address, registers the engine by itself.
    registered = _registered_since(order)
    if registered is not None:
        _move(order, state=ActionState.SENT, engine=registered, engine_name=registered.name, next_try_at=now)
        return
    answer = hands.actuator.start(order)
    changes = _after_answer(order, answer, now)
    try:
        # Before the transaction, which would hold its locks while the names are resolved.
        addresses = _addresses(answer.engine, order) if answer.engine is not None else {}
    except UnresolvedHostError as error:
        # A pod has no record in DNS before it is ready.
        changes |= {"says": f"{answer.says}; {error}", "next_try_at": now + _pause(order), "attempts": order.attempts}
        _move(order, state=ActionState.SENT, **changes)
        return
    with transaction.atomic():
        if answer.engine is not None:
            engine = _register(order, answer.engine, addresses)
            changes |= {"engine": engine, "engine_name": engine.name}
        _move(order, state=ActionState.SENT, **changes)


def _stop_or_flip(order: EngineAction, hands: Hands, now: datetime) -> None:
    engine = order.engine
    if engine is None:
        _finish(order, f"{order.engine_name} is already gone", now)
    elif order.state == ActionState.WANTED:
        _drain(order, engine, now)
    # A person returned it to service, which wins over the plan. A flip that is done sets the state, too.
    elif engine.desired_state == DesiredState.READY and FLIPPED_AT not in order.actuator_state:
        _finish(order, "the engine was returned to service", now, state=ActionState.CANCELLED)
    elif order.state == ActionState.DRAINING:
        _await_empty(order, engine, hands, now)
    elif order.kind == ActionKind.STOP:
        _stop(order, engine, hands, now)
    else:
        _flip(order, engine, hands, now)


def _drain(order: EngineAction, engine: Engine, now: datetime) -> None:
    with transaction.atomic():
        if engine.desired_state == DesiredState.READY:
            set_desired_state(engine, DesiredState.DRAINING, actor=ACTOR, why=order.why[:200])
        _move(order, state=ActionState.DRAINING, says="finishing its work", next_try_at=now + SETTLE)


def _await_empty(order: EngineAction, engine: Engine, hands: Hands, now: datetime) -> None:
    seen = hands.observed.engines(order.pool.slug, now.timestamp()).get(engine.engine_id)
    # Unknown work is not zero work.
    left = seen[0].in_flight if seen is not None else None
    if left == 0 or (seen is not None and seen[0].lost):
        _move(order, state=ActionState.SENT, says="no work left", next_try_at=now)
    else:
        remainder = "no gateway reports what is" if left is None else count(left, "request is", "requests are")
        says = f"{remainder} left on it"
        _move(order, says=says, next_try_at=now + POLL)


def _stop(order: EngineAction, engine: Engine, hands: Hands, now: datetime) -> None:
    answer = hands.actuator.stop(order)
    if answer.progress != ActionProgress.IN_EFFECT:
        _move(order, **_after_answer(order, answer, now))
        return
    with transaction.atomic():
        _finish(order, answer.says or f"{order.engine_name} is stopped", now)
        _forget(engine, order.why)


def _flip(order: EngineAction, engine: Engine, hands: Hands, now: datetime) -> None:
    flipped_at = order.actuator_state.get(FLIPPED_AT)
    if flipped_at is not None:
        # An earlier report may be of the process in its old role.
        if _serves(engine, hands.observed, now.timestamp(), since_s=float(flipped_at) + SETTLE.total_seconds()):
            _finish(order, f"{order.engine_name} serves as a {order.role} engine", now)
        else:
            _move(order, says=f"{order.engine_name} does not answer yet", next_try_at=now + POLL)
        return
    answer = hands.actuator.flip(order)
    changes = _after_answer(order, answer, now)
    with transaction.atomic():
        if answer.progress == ActionProgress.IN_EFFECT:
            change_engine(engine, {"role": order.role}, actor=ACTOR, why=order.why[:200])
            set_desired_state(engine, DesiredState.READY, actor=ACTOR, why=order.why[:200])
            changes["actuator_state"] = {**changes["actuator_state"], FLIPPED_AT: now.timestamp()}
        _move(order, **changes)


def _claim(order: EngineAction, now: datetime) -> bool:
    # One of the three changes with each claim and each step: of two processes that read the order, one gets it.
    as_seen = {"state": order.state, "attempts": order.attempts, "next_try_at": order.next_try_at}
    claimed = EngineAction.objects.filter(pk=order.pk, **as_seen).update(
        attempts=order.attempts + 1, next_try_at=now + CLAIM
    )
    order.attempts += claimed
    order.next_try_at = now + CLAIM
    return bool(claimed)


def _move(order: EngineAction, **changes: Any) -> None:
    """Change the order if the claim still holds; raises ClaimLostError."""
    if "says" in changes:
        changes["says"] = changes["says"][:300]
    # Any answer resets the pause: the next failure begins with a short one.
    changes.setdefault("attempts", 0)
    held = EngineAction.objects.filter(
        pk=order.pk, state=order.state, attempts=order.attempts, next_try_at=order.next_try_at
    )
    if not held.update(**changes):
        raise ClaimLostError
    for name, value in changes.items():
        setattr(order, name, value)


def _finish(order: EngineAction, says: str, now: datetime, *, state: ActionState = ActionState.DONE) -> None:
    before = audit_fields(order)
    with transaction.atomic():
        _move(order, state=state, says=says, finished_at=now)
        audit.record_for(ACTOR, f"engine_action.{state}", order, before=before, after=audit_fields(order))


def _give_up(order: EngineAction, says: str, hands: Hands, now: datetime) -> None:
    """End the order as failed and leave nothing half done: no engine without a process, none that drains for ever."""
    engine = order.engine
    if order.kind == ActionKind.START:
        # It began to serve at the last moment, and is wanted.
        if engine is not None and _serves(engine, hands.observed, now.timestamp()):
            _finish(order, f"{order.engine_name} serves", now)
            return
        answer = _undo(order, hands)
        if answer.progress != ActionProgress.IN_EFFECT:
            _move(
                order,
                **{
                    **_after_answer(order, answer, now),
                    "actuator_state": {**order.actuator_state, **answer.actuator_state, GIVEN_UP: says},
                },
            )
            return
        says = f"{says}; {answer.says}" if answer.says else says
    with transaction.atomic():
        _finish(order, says, now, state=ActionState.FAILED)
        if engine is None:
            return
        if order.kind == ActionKind.START:
            # An engine that takes work is not deleted.
            set_desired_state(engine, DesiredState.MAINTENANCE, actor=ACTOR, why=says[:200])
            _forget(engine, says)
        elif engine.desired_state == DesiredState.DRAINING:
            set_desired_state(engine, DesiredState.READY, actor=ACTOR, why=says[:200])


def _undo(order: EngineAction, hands: Hands) -> ActuatorAnswer:
    try:
        return hands.actuator.undo(order)
    except RejectedActionError as error:
        # Asking again would not change it, and the order would never end.
        return ActuatorAnswer(ActionProgress.IN_EFFECT, f"not canceled: {error}")


def _forget(engine: Engine, why: str) -> None:
    try:
        delete_engine(engine, actor=ACTOR, in_flight=0, why=why[:200])
    except EngineNotEmptyError as error:
        # It was returned to service at the last moment, which ends the order's hold on it.
        raise ClaimLostError from error


def _after_answer(order: EngineAction, answer: ActuatorAnswer, now: datetime) -> dict[str, Any]:
    return {
        "says": answer.says,
        "actuator_state": {**order.actuator_state, **answer.actuator_state},
        "next_try_at": now + POLL,
    }


def _addresses(wanted: NewEngine, order: EngineAction) -> dict[str, str]:
    """Return the new engine's addresses, checked and resolved; raises RejectedUrlError."""
    return checked_addresses(
        {
            "url": wanted.url,
            "kv_events_endpoint": wanted.kv_events_endpoint,
            "kv_replay_endpoint": wanted.kv_replay_endpoint,
        },
        order.pool,
    )


def _register(order: EngineAction, wanted: NewEngine, addresses: Mapping[str, str]) -> Engine:
    """Return the engine under its order's key; one already registered under the same address is adopted."""
    there = Engine.objects.filter(pool=order.pool, url=addresses["url"]).first()
    if there is not None:
        return there
    return store_engine(
        order.pool,
        wanted.name,
        addresses,
        actor=ACTOR,
        role=order.role,
        engine_id=order.key,
        supervised=wanted.supervised,
        kv_node=wanted.kv_node,
        why=order.why[:200],
    )


def _registered_since(order: EngineAction) -> Engine | None:
    """Return an engine of the order's role that was registered after it and belongs to no order yet."""
    if order.state != ActionState.SENT:
        return None
    engine: Engine | None = (
        Engine.objects.filter(pool=order.pool, role=order.role, registered_at__gt=order.ordered_at, orders=None)
        .order_by("registered_at", "pk")
        .first()
    )
    return engine


def _serves(engine: Engine, observed: FleetObservation, now_s: float, since_s: float = 0.0) -> bool:
    report = observed.report(engine.engine_id)
    return report is not None and report.serves and report.at >= max(since_s, now_s - REPORT_COUNTS_S)


def _span(order: EngineAction) -> str:
    minutes = (order.deadline_at - order.ordered_at).total_seconds() / 60
    return f"{minutes:.0f} min"
