"""Prevents lost updates: a change includes the revision that its author read."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

from django.db import models
from typing_extensions import override


class RevisedModel(models.Model):
    """Abstract base of objects that people and programs change. They are named by their public id."""

    public_id_field: ClassVar[str] = "slug"

    revision = models.PositiveIntegerField(default=1)
    """Incremented by each change; used as ETag of the API."""

    class Meta:
        abstract = True

    @override
    def __str__(self) -> str:
        return str(getattr(self, self.public_id_field))


Revised = TypeVar("Revised", bound=RevisedModel)


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
