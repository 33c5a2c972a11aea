"""One kind of object: its model, who may see and change its objects, and the services that do so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.db import models

from controlplane.platform.resource.declared_field import Fields, settable_fields
from controlplane.platform.revisions import RevisedModel
from controlplane.platform.role import Role


@dataclass(frozen=True, slots=True)
class Resource:
    """What the API, the console, and files need to know about a kind of object, besides the fields of its model."""

    noun: str
    """Its plural, as in addresses and file names."""
    model: type[RevisedModel]
    rows: Callable[[Any], models.QuerySet[Any]]
    """Function that returns the objects that an actor may see."""
    changed: Callable[..., Any]
    """The service that changes an object: (object, changes, *, actor, expected, why)."""
    created: Callable[..., Any]
    """The service that creates an object from its fields."""
    deleted: Callable[..., Any] | None = None
    """The service that deletes an object; None: objects are not deleted."""
    changes_need: Role = Role.OPERATOR
    """Minimum role, in at least one pool, for any change. Services check permissions in detail."""
    whole_fleet: bool = False
    """Whether the objects belong to no pool. Viewing them then requires a role everywhere."""

    @property
    def created_fields(self) -> Fields:
        """Return the fields that a person sets at creation."""
        return settable_fields(self.model, creating=True)
