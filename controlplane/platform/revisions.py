"""Prevents lost updates: a change includes the revision that its author read."""

from __future__ import annotations

from typing import Any, TypeVar

from django.db import models

Revised = TypeVar("Revised", bound=models.Model)


class StaleRevisionError(RuntimeError):
    """The object was changed in the meantime. `current` is the stored object."""

    def __init__(self, current: Any) -> None:
        self.current = current
        super().__init__(f"someone else changed {current}; reload it and repeat your change")


def locked(thing: Revised, expected: int | None) -> Revised:
    """Return the object as stored, locked until the transaction ends.

    Raises StaleRevisionError if its revision is not the expected one (None: any), and the model's DoesNotExist if it
    was deleted.
    """
    stored = type(thing)._default_manager.select_for_update().get(pk=thing.pk)
    if expected is not None and stored.revision != expected:
        raise StaleRevisionError(stored)
    return stored


def bump(stored: Revised, changes: dict[str, Any]) -> None:
    """Write the changed fields and the next revision if the stored revision is unchanged.

    Raises StaleRevisionError otherwise, so that no update is lost even on databases without row locks.
    """
    seen: int = stored.revision
    manager = type(stored)._default_manager
    if not manager.filter(pk=stored.pk, revision=seen).update(**changes, revision=seen + 1):
        raise StaleRevisionError(manager.get(pk=stored.pk))
    stored.revision = seen + 1
