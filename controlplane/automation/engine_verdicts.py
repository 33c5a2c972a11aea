"""Applies engine health verdicts: stores and audits them, and adds them to the next snapshot."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from controlplane.automation.models.engine_health import EngineHealth, HealthState
from controlplane.automation.rounds import bring_forward
from controlplane.fleet.models.engine import Engine
from controlplane.platform import audit
from controlplane.platform.actor import Actor
from controlplane.platform.role import Role
from controlplane.platform.roles import require
from controlplane.platform.snapshot_change import record_change

_FOLLOWED = (HealthState.QUARANTINED, HealthState.PROBATION)
"""States that affect the gateways."""
_VERBS = {
    HealthState.QUARANTINED: "engine.quarantine",
    HealthState.PROBATION: "engine.probation",
    HealthState.SUSPECT: "engine.readmit",
    HealthState.HEALTHY: "engine.readmit",
}


def put_verdict(
    engine: Engine,
    state: str,
    *,
    actor: Actor,
    since: datetime,
    code: str = "",
    reason: str = "",
    until: datetime | None = None,
    slow_start_from: float = 1.0,
    slow_start_s: float = 0.0,
) -> bool:
    """Store the verdict if it differs from the stored one. Return whether it differed.

    Only states that affect the gateways enter the audit and a snapshot; a suspicion does not.
    """
    state = HealthState(state)
    with transaction.atomic():
        stored = EngineHealth.objects.select_for_update().filter(engine=engine).first()
        if (stored.state, stored.code) == (state, code) if stored is not None else state == HealthState.HEALTHY:
            return False
        before = _audit_fields(stored)
        row = EngineHealth(
            engine=engine,
            state=state,
            code=code,
            reason=reason[:300],
            since=since,
            until=until,
            slow_start_from=slow_start_from,
            slow_start_s=slow_start_s,
        )
        row.save(force_insert=stored is None, force_update=stored is not None)
        was_followed = stored is not None and stored.state in _FOLLOWED
        if state in _FOLLOWED or was_followed:
            audit.record_for(actor, _VERBS[state], engine, before=before, after=_audit_fields(row), why=reason[:200])
            record_change()
    return True


def _audit_fields(row: EngineHealth | None) -> dict[str, Any] | None:
    return {"health": row.state, "code": row.code, "reason": row.reason} if row is not None else None


BY_HAND = "by_hand"
TRUSTED = "trusted"
TRUSTED_FOR = timedelta(minutes=10)
"""The automation's verdicts are ignored for this time. Lasting faults are detected again afterwards."""
_OUT = (HealthState.QUARANTINED, HealthState.PROBATION)


def quarantine(engine: Engine, *, actor: Actor, at: datetime, why: str = "") -> bool:
    """Send the engine no new work until a person trusts it again. Return whether it accepted new work before.

    Raises NotAllowedError.
    """
    require(actor, Role.OPERATOR, engine.pool)
    reason = f"by {actor.name}" + (f": {why}" if why else "")
    return put_verdict(engine, HealthState.QUARANTINED, actor=actor, since=at, code=BY_HAND, reason=reason)


def trust_again(engine: Engine, *, actor: Actor, at: datetime, why: str = "") -> bool:
    """Give a quarantined or returning engine its full load immediately. Return False if it is neither.

    The automation's verdicts are ignored for TRUSTED_FOR. Raises NotAllowedError.
    """
    require(actor, Role.OPERATOR, engine.pool)
    stored = EngineHealth.objects.filter(engine=engine).first()
    if stored is None or stored.state not in _OUT:
        return False
    reason = f"returned to service by {actor.name}" + (f": {why}" if why else "")
    until = at + TRUSTED_FOR
    changed = put_verdict(engine, HealthState.HEALTHY, actor=actor, since=at, code=TRUSTED, reason=reason, until=until)
    # A plan made without the engine is advised no longer than until the next wake-up.
    bring_forward(engine.pool, ("scaling", "rebalance"))
    return changed


def end_verdict(engine: Engine, *, actor: Actor, at: datetime, why: str = "") -> bool:
    """End a person's verdict early, so that the automation judges the engine again. Return False if there is none.

    Raises NotAllowedError.
    """
    require(actor, Role.OPERATOR, engine.pool)
    with transaction.atomic():
        stored = EngineHealth.objects.filter(engine=engine).first()
        if stored is None or not held_by_hand(stored, at):
            return False
        reason = f"override ended by {actor.name}" + (f": {why}" if why else "")
        put_verdict(engine, HealthState.HEALTHY, actor=actor, since=at, reason=reason)
        if stored.code == TRUSTED:
            # It changes nothing for gateways, so put_verdict records nothing; the person's act is recorded here.
            before = {"health": stored.state, "code": stored.code, "reason": stored.reason}
            after = {"health": HealthState.HEALTHY, "code": "", "reason": reason}
            audit.record_for(actor, "engine.end_trust", engine, before=before, after=after, why=why)
    return True


def held_by_hand(stored: EngineHealth | None, at: datetime) -> bool:
    """Return whether an operator's verdict is in force and suspends the automation's verdicts."""
    if stored is None:
        return False
    trusted = stored.code == TRUSTED and stored.until is not None and at < stored.until
    return trusted or stored.code == BY_HAND
