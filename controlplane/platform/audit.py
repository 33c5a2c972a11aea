"""Writes the audit: one event per change, in the transaction of the change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.utils import timezone

from controlplane.platform.actor import Actor
from controlplane.platform.idempotency import note_effect
from controlplane.platform.models.audit_event import AuditEvent

REDACTED = "(left out)"
_SECRET_WORDS = ("password", "secret", "token", "sha256", "bearer", "credential")


def record(
    actor: Actor,
    verb: str,
    object_kind: str,
    object_id: str,
    *,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
    why: str = "",
    pool: str = "",
) -> AuditEvent:
    """Add one event; raises TransactionManagementError outside a transaction, so that no change goes untold."""
    if not transaction.get_connection().in_atomic_block:
        raise transaction.TransactionManagementError("record belongs into the transaction of its change")
    note_effect(f"{verb} {object_id}")
    return AuditEvent.objects.create(
        at=timezone.now(),
        actor=actor.user,
        actor_name=actor.name,
        via=actor.via,
        verb=verb,
        object_kind=object_kind,
        object_id=object_id,
        pool_slug=pool,
        before=redacted(before),
        after=redacted(after),
        why=why[:200],
        request_id=actor.request_id[:128],
    )


def redacted(values: Any) -> Any:
    """Return a copy in which texts under secret-looking names are left out, at any depth; numbers are no secrets."""
    if isinstance(values, Mapping):
        return {name: REDACTED if _is_secret(str(name), value) else redacted(value) for name, value in values.items()}
    if isinstance(values, list | tuple):
        return [redacted(value) for value in values]
    return values


def _is_secret(name: str, value: Any) -> bool:
    return not isinstance(value, int | float) and any(word in name.lower() for word in _SECRET_WORDS)
