"""Creates, changes, and deletes objects with validation, an audit event, and publication.

Callers check roles, because the required role depends on the action. Models with `in_snapshot` are published.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from django.db import IntegrityError, models, transaction

from controlplane.platform import audit
from controlplane.platform.actor import Actor
from controlplane.platform.audit_values import audit_values, kind_of
from controlplane.platform.conflict import ConflictError
from controlplane.platform.field_problems import check_fields, problem
from controlplane.platform.format import some_names
from controlplane.platform.revisions import bump, locked
from controlplane.platform.snapshot_change import record_change

Thing = TypeVar("Thing", bound=models.Model)


class InUseError(ConflictError):
    """The object cannot be deleted because other objects refer to it. The message names them."""


def create(thing: Thing, verb: str, *, actor: Actor, why: str = "") -> Thing:
    """Store a new object and return it. Raises InvalidFieldsError."""
    with _taken_names_explained(), transaction.atomic():
        check_fields(thing)
        thing.save(force_insert=True)
        audit.record_for(actor, verb, thing, after=audit_values(thing), why=why)
        _publish(thing)
    return thing


def change(
    thing: Thing,
    changes: Mapping[str, Any],
    verb: str,
    *,
    actor: Actor,
    expected: int | None = None,
    why: str = "",
    pool: str | None = None,
) -> Thing:
    """Store the changed fields and return the object's new state. Equal values change nothing.

    The given object is updated, too. Raises InvalidFieldsError, StaleRevisionError, and DoesNotExist if the object was
    deleted.
    """
    with _taken_names_explained(), transaction.atomic():
        stored = locked(thing, expected)
        before = audit_values(stored)
        for name, value in changes.items():
            setattr(stored, name, value)
        check_fields(stored)
        if audit_values(stored) != before:
            bump(stored, {name: getattr(stored, name) for name in changes})
            audit.record_for(actor, verb, stored, before=before, after=audit_values(stored), why=why, pool=pool)
            _publish(stored)
    thing.__dict__.update({name: value for name, value in stored.__dict__.items() if name != "_state"})
    return thing


def delete(thing: models.Model, verb: str, *, actor: Actor, expected: int | None = None, why: str = "") -> None:
    """Delete the object. Raises StaleRevisionError, and InUseError if other objects refer to it."""
    with transaction.atomic():
        stored = locked(thing, expected)
        before = audit_values(stored)
        try:
            stored.delete()
        except models.ProtectedError as error:
            raise InUseError(_who_needs(stored, error)) from error
        # Of `thing`: delete() has cleared the primary key of `stored`.
        audit.record_for(actor, verb, thing, before=before, why=why)
        _publish(thing)


@contextmanager
def _taken_names_explained() -> Iterator[None]:
    try:
        yield
    except IntegrityError as error:
        # Another writer took the name between the check and the write.
        raise problem("", "Another object with this name was just created; choose another name.") from error


def _publish(thing: models.Model) -> None:
    if getattr(thing, "in_snapshot", False):
        record_change()


def _who_needs(thing: models.Model, error: models.ProtectedError) -> str:
    needed = sorted(error.protected_objects, key=str)
    named = some_names([f"{kind_of(one).replace('_', ' ')} {one}" for one in needed], 3)
    return f"{kind_of(thing).replace('_', ' ')} {thing} is used by {named}; remove these first."
