"""Puts verdicts of engine health into effect: durable, audited, and in the next snapshot."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import transaction

from controlplane.automation.models.engine_health import EngineHealth, HealthState
from controlplane.fleet.models.engine import Engine
from controlplane.platform import audit
from controlplane.platform.actor import Actor
from controlplane.platform.snapshot_change import record_change

_FOLLOWED = (HealthState.QUARANTINED, HealthState.PROBATION)
"""States that change what gateways do."""
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
    ramp_from: float = 1.0,
    ramp_s: float = 0.0,
) -> bool:
    """Store the verdict where it is another one than stored, and return whether it was.

    Only what gateways act on enters the audit and a snapshot; that somebody is suspected does not.
    """
    state = HealthState(state)
    with transaction.atomic():
        stored = EngineHealth.objects.select_for_update().filter(engine=engine).first()
        if (stored.state, stored.code) == (state, code) if stored is not None else state == HealthState.HEALTHY:
            return False
        before = _told(stored)
        row = EngineHealth(
            engine=engine,
            state=state,
            code=code,
            reason=reason[:300],
            since=since,
            until=until,
            ramp_from=ramp_from,
            ramp_s=ramp_s,
        )
        row.save(force_insert=stored is None, force_update=stored is not None)
        was_followed = stored is not None and stored.state in _FOLLOWED
        if state in _FOLLOWED or was_followed:
            audit.record(
                actor,
                _VERBS[state],
                "engine",
                engine.engine_id,
                before=before,
                after=_told(row),
                why=reason[:200],
                pool=engine.pool.slug,
            )
            record_change()
    return True


def _told(row: EngineHealth | None) -> dict[str, Any] | None:
    return {"health": row.state, "code": row.code, "reason": row.reason} if row is not None else None
