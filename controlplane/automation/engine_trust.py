"""A person's override of engine health for one engine: out of service until trusted, or trusted for 10 minutes."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction

from controlplane.automation.engine_verdicts import put_verdict
from controlplane.automation.models.engine_health import EngineHealth, HealthState
from controlplane.automation.rounds import bring_forward
from controlplane.fleet.models.engine import Engine
from controlplane.platform import audit
from controlplane.platform.actor import Actor
from controlplane.platform.role import Role
from controlplane.platform.roles import require

BY_HAND = "by_hand"
TRUSTED = "trusted"
TRUSTED_FOR = timedelta(minutes=10)
"""So long no verdict follows; a sickness that lasts is then found again."""
_OUT = (HealthState.QUARANTINED, HealthState.PROBATION)


def quarantine(engine: Engine, *, actor: Actor, at: datetime, why: str = "") -> bool:
    """Let the engine get no new work until somebody trusts it again; return whether it did before.

    Raises NotAllowedError.
    """
    require(actor, Role.OPERATOR, engine.pool)
    reason = f"by {actor.name}" + (f": {why}" if why else "")
    return put_verdict(engine, HealthState.QUARANTINED, actor=actor, since=at, code=BY_HAND, reason=reason)


def trust_again(engine: Engine, *, actor: Actor, at: datetime, why: str = "") -> bool:
    """Give a quarantined or returning engine its whole load at once; return False where it is neither.

    For TRUSTED_FOR no verdict of the automation follows. Raises NotAllowedError.
    """
    require(actor, Role.OPERATOR, engine.pool)
    stored = EngineHealth.objects.filter(engine=engine).first()
    if stored is None or stored.state not in _OUT:
        return False
    reason = f"returned to service by {actor.name}" + (f": {why}" if why else "")
    until = at + TRUSTED_FOR
    changed = put_verdict(engine, HealthState.HEALTHY, actor=actor, since=at, code=TRUSTED, reason=reason, until=until)
    # What was planned without the engine is advised no longer than until the next wake-up.
    bring_forward(engine.pool, ("scaling", "rebalance"))
    return changed


def end_verdict(engine: Engine, *, actor: Actor, at: datetime, why: str = "") -> bool:
    """End a person's verdict before its time, so that engine health judges the engine again; False where none holds.

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
            # It changes nothing for gateways, so put_verdict is silent about it; who did it is told all the same.
            before, name = {"health": stored.state, "code": stored.code, "reason": stored.reason}, engine.engine_id
            after = {"health": HealthState.HEALTHY, "code": "", "reason": reason}
            audit.record(
                actor, "engine.end_trust", "engine", name, before=before, after=after, why=why, pool=engine.pool.slug
            )
    return True


def held_by_hand(stored: EngineHealth | None, at: datetime) -> bool:
    """Return whether an operator's verdict holds at this moment, so that the automation's own does not count."""
    if stored is None:
        return False
    trusted = stored.code == TRUSTED and stored.until is not None and at < stored.until
    return trusted or stored.code == BY_HAND
