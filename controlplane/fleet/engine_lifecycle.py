"""Changes the lifecycle state of engines: ready, draining, maintenance, deleted."""

from __future__ import annotations

import logging
import signal
import time
from dataclasses import dataclass

from django.db import DatabaseError, models, transaction

from controlplane.fleet.models.engine import DesiredState, Engine
from controlplane.platform import audit, recorded_change
from controlplane.platform.actor import Actor, program
from controlplane.platform.conflict import ConflictError
from controlplane.platform.live_fleet.samples import fleet_samples
from controlplane.platform.revisions import locked
from controlplane.platform.role import Role
from controlplane.platform.roles import require
from routing.values.counted import count

MAX_AGE_S = 10.0
"""Maximum age of a sample that is used for work in flight. Samples arrive twice a second."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EngineReading:
    """Requests that run on the engine or wait for it (None: unknown), and whether all gateways have lost the engine."""

    in_flight: int | None = None
    lost: bool = False


def engine_reading(engine_id: str, now: float) -> EngineReading:
    """Return the newest reading of the engine, merged from all gateways. `now` is unix seconds."""
    sample = fleet_samples().latest
    if sample is None or now - sample.at > MAX_AGE_S:
        return EngineReading()
    for engine in sample.engines:
        if engine.engine_id == engine_id:
            return EngineReading(engine.running + engine.bound, engine.state == "lost")
    return EngineReading()


_VERBS = {
    DesiredState.READY: "engine.ready",
    DesiredState.DRAINING: "engine.drain",
    DesiredState.MAINTENANCE: "engine.maintain",
    DesiredState.ASLEEP: "engine.sleep",
}
_SHARED = {DesiredState.DRAINING: DesiredState.READY, DesiredState.READY: DesiredState.DRAINING}
"""New state → required former state, for states that all ranks of a process enter together. Maintenance is set per
rank.
"""


class EngineNotEmptyError(ConflictError):
    """The engine may still have work. The message explains what to do first."""


def set_desired_state(
    engine: Engine,
    state: DesiredState,
    *,
    actor: Actor,
    expected: int | None = None,
    why: str = "",
    alone: bool = False,
) -> Engine:
    """Store and publish the engine's desired state. Raises NotAllowedError, StaleRevisionError.

    Data-parallel ranks of one process drain and return together, unless `alone` is set.
    """
    state = DesiredState(state)
    with transaction.atomic():
        _set(engine, state, actor, expected, why)
        if engine.rank is not None and state in _SHARED and not alone:
            for other in _other_ranks(engine).filter(desired_state=_SHARED[state]):
                _set(other, state, actor, None, why or f"as {engine.name}, a rank of the same process")
    return engine


def _set(engine: Engine, state: DesiredState, actor: Actor, expected: int | None, why: str) -> None:
    require(actor, Role.OPERATOR, engine.pool)
    changes = {"desired_state": state.value}
    recorded_change.change(engine, changes, _VERBS[state], actor=actor, expected=expected, why=why)


def _other_ranks(engine: Engine) -> models.QuerySet[Engine]:
    process = engine.url.partition("#")[0]
    return Engine.objects.select_related("pool").filter(url__startswith=f"{process}#").exclude(pk=engine.pk)


def delete_engine(
    engine: Engine,
    *,
    actor: Actor,
    in_flight: int | None,
    lost: bool = False,
    expected: int | None = None,
    why: str = "",
) -> None:
    """Delete an engine that accepts no new work and has no requests.

    `in_flight` is the number of requests that run on it or wait for it. None means unknown, which is accepted only if
    the engine is `lost`. Raises NotAllowedError, StaleRevisionError, EngineNotEmptyError.
    """
    require(actor, Role.OPERATOR, engine.pool)
    with transaction.atomic():
        stored = locked(engine, expected)
        # Of the locked row: the engine may have been returned to service meanwhile.
        _reject_unless_empty(stored, in_flight, lost=lost)
        recorded_change.delete(stored, "engine.delete", actor=actor, why=why)


def delete_idle_engine(engine: Engine, *, actor: Actor, expected: int | None = None, why: str = "") -> None:
    """Delete an engine without requests in the gateways' newest samples. Raises the same errors as `delete_engine`."""
    reading = engine_reading(engine.engine_id, time.time())
    delete_engine(engine, actor=actor, in_flight=reading.in_flight, lost=reading.lost, expected=expected, why=why)


def _reject_unless_empty(engine: Engine, in_flight: int | None, *, lost: bool) -> None:
    if engine.desired_state == DesiredState.READY:
        raise EngineNotEmptyError(f"{engine.name} is serving; drain it first, and delete it when nothing is in flight.")
    if in_flight is None and not lost:
        raise EngineNotEmptyError(
            f"In-flight requests on {engine.name} are unknown; wait for the gateway's next report, or until it is lost."
        )
    if in_flight:
        requests = count(in_flight, "request is", "requests are")
        raise EngineNotEmptyError(f"{requests} in flight on {engine.name}; delete it when they are done.")


def record_exit(engine_id: str, status: int) -> None:
    """Write an audit event about the end of an engine's process: its exit code, or minus the signal that killed it.

    Processes that are no engines are ignored. While the database is unavailable, only the log has the end.
    """
    signals = {item.value: item.name for item in signal.Signals}
    how = (
        f"was killed by {signals.get(-status, f'signal {-status}')}" if status < 0 else f"ended with exit code {status}"
    )
    try:
        with transaction.atomic():
            engine = Engine.objects.select_related("pool").filter(engine_id=engine_id).first()
            if engine is not None:
                why = f"{engine.name} {how}"
                audit.record_for(program("supervisor"), "engine.exit", engine, after={"exit_status": status}, why=why)
    except DatabaseError as error:
        logger.warning("an exit cannot be recorded", extra={"engine": engine_id, "error": type(error).__name__})
