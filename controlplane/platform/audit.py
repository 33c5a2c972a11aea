"""Writes audit events, one per change, in the transaction of the change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import models, transaction
from django.utils import timezone

from controlplane.platform.actor import Actor
from controlplane.platform.audit_values import kind_of, public_id
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
    """Add one event. Raises TransactionManagementError outside a transaction, so that every change is recorded."""
    if not transaction.get_connection().in_atomic_block:
        raise transaction.TransactionManagementError("record belongs into the transaction of its change")
    # Every change is recorded here, so that none can forget to mark its Idempotency-Key as used.
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


def record_for(
    actor: Actor,
    verb: str,
    thing: models.Model,
    *,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
    why: str = "",
    pool: str | None = None,
) -> AuditEvent:
    """Add one event about a stored object, with its kind and public id. Raises the same errors as `record`.

    `pool` is the slug of the affected pool; None: the object's pool, if any.
    """
    if pool is None:
        its_pool = thing if kind_of(thing) == "pool" else getattr(thing, "pool", None)
        pool = its_pool.slug if isinstance(its_pool, models.Model) else ""
    return record(actor, verb, kind_of(thing), public_id(thing), before=before, after=after, why=why, pool=pool)


def redacted(values: Any) -> Any:
    """Return a copy without texts whose names suggest a secret, at any depth. Numbers are kept."""
    if isinstance(values, Mapping):
        return {name: REDACTED if _is_secret(str(name), value) else redacted(value) for name, value in values.items()}
    if isinstance(values, list | tuple):
        return [redacted(value) for value in values]
    return values


def _is_secret(name: str, value: Any) -> bool:
    return not isinstance(value, int | float) and any(word in name.lower() for word in _SECRET_WORDS)
