"""Converts objects to plain values, in the same form for the audit and for comparisons.

`public_id_field` names the field of a model's public id.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import models

from controlplane.platform.resource.declared_field import FieldAccess, declaration_of, fields_of

_NEVER_RECORDED = frozenset({"id", "password"})


def kind_of(thing: models.Model) -> str:
    """Return the object's kind in the form used by the audit, such as engine or api_key."""
    return str(thing._meta.verbose_name).replace(" ", "_")


def public_id(thing: models.Model) -> str:
    """Return the id by which people and other programs identify the object."""
    return str(getattr(thing, getattr(thing, "public_id_field", "pk")))


def audit_values(thing: models.Model) -> dict[str, Any]:
    """Return the object's fields as JSON values. Relations are public ids, and secrets are omitted."""
    return {
        field.name: _plain(getattr(thing, field.name))
        for field in fields_of(type(thing))
        if field.name not in _NEVER_RECORDED and declaration_of(field).access is not FieldAccess.HIDDEN
    }


def fields_but(model: type[models.Model], *fixed: str) -> frozenset[str]:
    """Return the names of the model's fields except the row id, the revision, and the given fields."""
    return frozenset(field.name for field in model._meta.concrete_fields) - {"id", "revision", *fixed}


def _plain(value: Any) -> Any:
    if isinstance(value, models.Model):
        return public_id(value) if hasattr(value, "public_id_field") else str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    return value
