"""Ends a canary: aborted by a person or by `job`, promoted (`lifecycle`), or ended because its policy changed.

The guardrails are in planning/trials/canary.py.
"""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.utils import timezone

from controlplane.platform import audit
from controlplane.platform.actor import Actor
from controlplane.platform.audit_values import audit_values
from controlplane.platform.conflict import ConflictError
from controlplane.platform.revisions import bump, locked
from controlplane.platform.snapshot_change import record_change
from controlplane.policies.models.policy import Policy
from controlplane.policies.roles import only_pool, require_all_pools
from controlplane.trials.models.canary import Canary, CanaryState


class CanaryOverError(ConflictError):
    """The canary has ended, or cannot take the requested step. The message explains the fix."""


def locked_running(canary: Canary, expected: int | None) -> Canary:
    """Lock the running canary and return it as stored. Raises StaleRevisionError, CanaryOverError."""
    stored = locked(canary, expected)
    if stored.state != CanaryState.RUNNING:
        raise CanaryOverError(f"The canary has already ended: {stored.get_state_display().lower()}. Start another one.")
    return stored


def abort(canary: Canary, *, actor: Actor, expected: int | None = None, why: str = "") -> Canary:
    """Return all sessions to the live version or to the other pools.

    Raises NotAllowedError, StaleRevisionError, CanaryOverError.
    """
    require_all_pools(actor, canary.policy)
    with transaction.atomic():
        stored = locked_running(canary, expected)
        reason = why or "Aborted manually"
        return end(stored, CanaryState.ABORTED, "canary.abort", actor=actor, reason=reason, pool=pool_of(stored))


def end(
    stored: Canary,
    state: CanaryState,
    verb: str,
    *,
    actor: Actor,
    reason: str,
    why: str = "",
    pool: str = "",
    waived: dict[str, list[str]] | None = None,
) -> Canary:
    """End a locked, running canary in the caller's transaction.

    Record the end in the audit, and remove the canary's arm.
    """
    ending = {"state": state, "reason": reason[:400], "ended_by": actor.name, "ended_at": timezone.now()}
    changed(stored, ending, verb, actor=actor, why=why or reason, pool=pool, waived=waived)
    return stored


def changed(
    stored: Canary,
    changes: dict[str, Any],
    verb: str,
    *,
    actor: Actor,
    why: str,
    pool: str,
    waived: dict[str, list[str]] | None = None,
) -> None:
    """Write the changes with the next revision, audit them, and publish. Raises StaleRevisionError.

    `waived` is the missing evidence that was waived, for the audit.
    """
    before = audit_fields(stored)
    for name, value in changes.items():
        setattr(stored, name, value)
    bump(stored, changes)
    audit.record_for(
        actor, verb, stored, before=before, after=audit_fields(stored) | (waived or {}), why=why, pool=pool
    )
    record_change()


def pool_of(canary: Canary) -> str:
    """Return the pool for an event about the canary; empty if there are several."""
    return canary.pool.slug if canary.pool is not None else only_pool(canary.policy)


def end_running(policy: Policy, reason: str, *, actor: Actor, pool: str = "") -> None:
    """End the policy's running canary, if any, because the policy itself changed."""
    running = Canary.objects.select_for_update().filter(policy=policy, state=CanaryState.RUNNING).first()
    if running is not None:
        end(running, CanaryState.ENDED, "canary.end", actor=actor, reason=reason, pool=pool)


def audit_fields(canary: Canary) -> dict[str, Any]:
    """Return the canary in the form recorded in the audit, without its figures."""
    return {name: value for name, value in audit_values(canary).items() if name != "evaluation"} | {
        "share": canary.share
    }
