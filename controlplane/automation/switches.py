"""Freezes a pool's automations and overrides its engine count, both immediately and with an audit event.

A person's change does not wait for the next regular round: the affected rounds become due immediately.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from controlplane.automation.engine_actions import withdraw_waiting
from controlplane.automation.models.pool_automation import PoolAutomation
from controlplane.automation.pool_policy import pool_policy
from controlplane.automation.rounds import bring_forward
from controlplane.fleet.models.pool import Pool
from controlplane.platform import audit
from controlplane.platform.actor import Actor
from controlplane.platform.field_problems import FieldProblem, InvalidFieldsError
from controlplane.platform.revisions import bump, locked
from controlplane.platform.role import Role
from controlplane.platform.roles import require

LONGEST_OVERRIDE = timedelta(days=7)
MAX_ENGINES = 10_000
"""Upper bound of any number. The live policy's bounds are narrower."""
CARRIED_OUT_BY = ("scaling", "prefill_decode")
"""Jobs that carry out an override."""


def pool_automation(pool: Pool) -> PoolAutomation:
    """Return the pool's stored switches. Create them if necessary."""
    switches, _ = PoolAutomation.objects.select_related("pool").get_or_create(pool=pool)
    return switches


def freeze(pool: Pool, *, actor: Actor, expected: int | None = None, why: str = "") -> PoolAutomation:
    """Stop all automation of the pool, and withdraw actions that have not begun.

    Raises NotAllowedError, StaleRevisionError.
    """
    require(actor, Role.OPERATOR, pool)
    with transaction.atomic():
        changed = _change(pool, {"frozen": True}, "pool.freeze", actor, expected, why)
        withdraw_waiting(pool, actor=actor, why=why or "The pool was frozen")
    return changed


def unfreeze(pool: Pool, *, actor: Actor, expected: int | None = None, why: str = "") -> PoolAutomation:
    """Resume the pool's automations as configured in its policy. Raises NotAllowedError, StaleRevisionError."""
    require(actor, Role.OPERATOR, pool)
    return _change(pool, {"frozen": False}, "pool.unfreeze", actor, expected, why)


def take_over(
    pool: Pool,
    *,
    until: datetime,
    actor: Actor,
    engines: int | None = None,
    prefill: int | None = None,
    expected: int | None = None,
    why: str = "",
) -> PoolAutomation:
    """Fix the number of engines or prefill engines until a given time, regardless of the automations' plans.

    The numbers must be within the bounds of the pool's live policy. Raises NotAllowedError, InvalidFieldsError,
    StaleRevisionError.
    """
    require(actor, Role.OPERATOR, pool)
    _check(pool, until, engines, prefill)
    changes = {"override_engines": engines, "override_prefill": prefill, "override_until": until}
    return _change(pool, changes, "pool.override", actor, expected, why)


def give_back(pool: Pool, *, actor: Actor, expected: int | None = None, why: str = "") -> PoolAutomation:
    """End an override early. Raises NotAllowedError, StaleRevisionError."""
    require(actor, Role.OPERATOR, pool)
    changes = {"override_engines": None, "override_prefill": None, "override_until": None}
    return _change(pool, changes, "pool.end_override", actor, expected, why)


def _check(pool: Pool, until: datetime, engines: int | None, prefill: int | None) -> None:
    now = timezone.now()
    wrong = []
    if not now < until <= now + LONGEST_OVERRIDE:
        wrong.append(FieldProblem("until", f"Must be in the future, at most {LONGEST_OVERRIDE.days} days ahead."))
    if engines is None and prefill is None:
        wrong.append(FieldProblem("engines", "Enter the number of engines, or of prefill engines."))
    bounds = pool_policy(pool).automation.scaling
    for name, value, least in (("engines", engines, max(1, bounds.min_engines)), ("prefill", prefill, 1)):
        if value is not None and not least <= value <= bounds.max_engines:
            words = f"The live policy allows {least} to {bounds.max_engines}; publish other bounds to exceed them."
            wrong.append(FieldProblem(name, words))
    if wrong:
        raise InvalidFieldsError(wrong)


def _change(
    pool: Pool, changes: dict[str, Any], verb: str, actor: Actor, expected: int | None, why: str
) -> PoolAutomation:
    with transaction.atomic():
        stored = locked(pool_automation(pool), expected)
        before = audit_fields(stored)
        for name, value in changes.items():
            setattr(stored, name, value)
        after = audit_fields(stored)
        if after == before:
            return stored
        stored.changed_at, stored.changed_by, stored.why = timezone.now(), actor.name, why[:200]
        named = {name: getattr(stored, name) for name in (*changes, "changed_at", "changed_by", "why")}
        bump(stored, named)
        audit.record_for(actor, verb, pool, before=before, after=after, why=why)
        bring_forward(pool, CARRIED_OUT_BY)
    return stored


def audit_fields(stored: PoolAutomation) -> dict[str, Any]:
    """Return the switches in the form recorded in the audit."""
    until = stored.override_until
    return {
        "frozen": stored.frozen,
        "override_engines": stored.override_engines,
        "override_prefill": stored.override_prefill,
        "override_until": until.isoformat() if until is not None else None,
    }
