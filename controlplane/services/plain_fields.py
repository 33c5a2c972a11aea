"""Objects as plain values, the same for the audit and for people who compare them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import models

from controlplane.models import ApiKey, Canary, Engine, EngineOrder, JobRun, Policy, PolicyVersion, Pool, Region, Tenant

_ID_FIELDS: dict[type[models.Model], str] = {
    Region: "slug",
    Pool: "slug",
    Engine: "engine_id",
    Tenant: "slug",
    ApiKey: "key_id",
    Policy: "slug",
    PolicyVersion: "number",
    JobRun: "pk",
    EngineOrder: "key",
    Canary: "key",
}
_NEVER_TOLD = frozenset({"id", "sha256", "password"})


def kind_of(thing: models.Model) -> str:
    """Return the object's kind as the audit names it, for example engine or api_key."""
    return str(thing._meta.verbose_name).replace(" ", "_")


def public_id(thing: models.Model) -> str:
    """Return the id by which people and other programs know the object."""
    return str(getattr(thing, _ID_FIELDS.get(type(thing), "pk")))


def plain_fields(thing: models.Model) -> dict[str, Any]:
    """Return the object's fields as JSON values; relations by their public id, secrets not at all."""
    return {
        field.name: _plain(getattr(thing, field.name))
        for field in thing._meta.concrete_fields
        if field.name not in _NEVER_TOLD
    }


def _plain(value: Any) -> Any:
    if isinstance(value, models.Model):
        return public_id(value) if type(value) in _ID_FIELDS else str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    return value
