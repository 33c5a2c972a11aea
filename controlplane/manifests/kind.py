"""A kind of object in files, derived from the declaration of its resource: a new field needs no code here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import models
from rest_framework import serializers

from controlplane.access.resources import TENANTS
from controlplane.fleet.resources import POOLS, REGIONS
from controlplane.manifests.three_way import Values
from controlplane.platform.actor import Actor
from controlplane.platform.api.error_answers import validation_problems
from controlplane.platform.api.resource_bodies import input_fields
from controlplane.platform.api.strict_fields import Input, Text
from controlplane.platform.audit_values import audit_values
from controlplane.platform.field_problems import FieldProblem, InvalidFieldsError, problem
from controlplane.platform.resource.declared_field import ModelField, declaration_of
from controlplane.platform.resource.resource import Resource
from controlplane.platform.role import Role
from controlplane.platform.roles import may
from controlplane.policies.document.schema import Path
from controlplane.policies.resources import POLICIES

SLUG = {"name": "slug"}
_REFERRED = (REGIONS, POLICIES, TENANTS, POOLS)


@dataclass(frozen=True, slots=True)
class ChangeResult:
    """What a change did besides storing the fields: a remark for people, and what is not done yet."""

    remark: str = ""
    awaiting: Values = field(default_factory=dict)
    """Fields that wait for an approval."""
    unfinished: bool = False
    """Whether a later apply has to complete a deletion."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object in files."""

    name: str
    resource: Resource
    identity: Mapping[str, str] = field(default_factory=lambda: SLUG)
    """Name in `metadata` → field of the object."""

    @property
    def fields(self) -> dict[str, ModelField]:
        """Return the fields of `spec`, by name."""
        named = set(self.identity.values())
        return {name: item for name, item in self.resource.created_fields.items() if name not in named}

    def spec_fields(self) -> dict[str, serializers.Field]:
        """Return the fields that check `spec`. References are names here, because the object may be in the files."""
        bodies = input_fields(self.resource.model, creating=True, optional=True)
        references = {name for name, item in self.fields.items() if isinstance(item, models.ForeignKey)}
        return {name: Text(max_length=64) if name in references else bodies[name] for name in self.fields}

    def rows(self, actor: Actor) -> models.QuerySet[Any]:
        """Return the objects that the actor may see."""
        if self.resource.whole_fleet and not may(actor, Role.VIEWER):
            return self.resource.model._default_manager.none()
        return self.resource.rows(actor)

    def find(self, actor: Actor, metadata: Mapping[str, str]) -> Any | None:
        """Return the object with this name, if the actor may see it. Raises InvalidFieldsError if there are several."""
        fields = {self.resource.created_fields[name]: metadata[given] for given, name in self.identity.items()}
        listed = list(self.rows(actor).filter(**{_lookup(item): name for item, name in fields.items()})[:2])
        if len(listed) > 1:
            raise problem("", f"Several objects are named {self.name_in(metadata)}; rename them in the console.")
        return listed[0] if listed else None

    def with_id(self, object_id: str, rows: models.QuerySet[Any] | None = None) -> Any | None:
        """Return the object with this public id among `rows`; None: among all."""
        rows = self.resource.model._default_manager.all() if rows is None else rows
        return rows.filter(**{self.resource.model.public_id_field: object_id}).first()

    def metadata_of(self, thing: Any) -> dict[str, str]:
        """Return what names the object in files."""
        values = self.values_of(thing)
        return {given: values[name,] for given, name in self.identity.items()}

    def name_in(self, metadata: Mapping[str, str]) -> str:
        """Return the name in one text, such as chat/e1."""
        return "/".join(str(metadata.get(name, "")) for name in self.identity)

    def values_of(self, thing: Any) -> dict[Path, Any]:
        """Return the stored fields, including those that name the object."""
        values = audit_values(thing)
        return {(name,): values[name] for name in self.resource.created_fields}

    def checked(self, metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[Path, Any]:
        """Return the wanted fields. Raises InvalidFieldsError with every problem of their names, types, and ranges."""
        named = type(f"{self.name}Metadata", (Input,), {name: Text(max_length=120) for name in self.identity})
        inner = type(f"{self.name}Spec", (Input,), self.spec_fields())
        values = {self.identity[name]: value for name, value in _read(named, metadata, "metadata").items()}
        return {(name,): plain(value) for name, value in {**values, **_read(inner, spec, "spec")}.items()}

    def exported(self, thing: Any, *, defaults: bool) -> dict[str, Any]:
        """Return `spec`, without fields that have their defaults unless `defaults` is set."""
        values = self.values_of(thing)
        return {name: values[name,] for name, item in self.fields.items() if defaults or _deviates(item, values[name,])}

    def default(self, path: Path, stored: Values) -> Any:
        """Return the value of a field that left the files: its default, or the stored value if it keeps it."""
        item = self.resource.created_fields.get(path[0])
        return plain(item.get_default()) if item is not None and _resets(item) else stored.get(path)

    def create(self, wanted: Values, *, actor: Actor, why: str) -> tuple[Any, ChangeResult]:
        """Create the object. Raises InvalidFieldsError, and the errors of its service."""
        given = {path[0]: value for path, value in wanted.items()}
        needed = (name for name, item in self.resource.created_fields.items() if not _may_be_omitted(item))
        if missing := [name for name in needed if name not in given]:
            raise InvalidFieldsError(FieldProblem(name, "Is missing.") for name in missing)
        return self.resource.created(**self._references(given, actor), actor=actor, why=why), ChangeResult()

    def change(self, thing: Any, changes: Values, wanted: Values, *, actor: Actor, why: str) -> ChangeResult:
        """Change the object. `wanted` are all fields in the files. Raises the errors of its service."""
        given = self._references({path[0]: value for path, value in changes.items()}, actor)
        if given:
            self.resource.changed(thing, given, actor=actor, expected=thing.revision, why=why)
        return ChangeResult()

    def delete(self, thing: Any, *, actor: Actor, why: str) -> ChangeResult:
        """Delete the object, or return why it stays. Raises the errors of its service."""
        if self.resource.deleted is None:
            return ChangeResult("is not deleted by files; it stays without their management")
        self.resource.deleted(thing, actor=actor, expected=thing.revision, why=why)
        return ChangeResult()

    def _references(self, given: Mapping[str, Any], actor: Actor) -> dict[str, Any]:
        """Return the values with referenced objects in place of their names. Raises InvalidFieldsError."""
        values = dict(given)
        for name, item in self.resource.created_fields.items():
            if name in given and isinstance(item, models.ForeignKey):
                values[name] = _referenced(item, name, given[name], actor)
            elif name in given and isinstance(item, models.DateTimeField) and isinstance(given[name], str):
                values[name] = datetime.fromisoformat(given[name])
        return values


def plain(value: Any) -> Any:
    """Return the value in the form of the audit, in which stored values are compared."""
    if isinstance(value, datetime):
        return value.isoformat()
    return list(value) if isinstance(value, tuple) else value


def _read(form: type[Input], given: Mapping[str, Any], inside: str) -> dict[str, Any]:
    checked = form(data=dict(given), partial=inside == "spec")
    if not checked.is_valid():
        problems = validation_problems(checked.errors)
        raise InvalidFieldsError(FieldProblem(f"{inside}.{one.path}".rstrip("."), one.message) for one in problems)
    return dict(checked.validated_data)


def _lookup(item: ModelField) -> str:
    """Return the lookup by which a field is compared with a name."""
    is_reference = isinstance(item, models.ForeignKey)
    return f"{item.name}__{item.related_model.public_id_field}" if is_reference else item.name


def _referenced(item: Any, name: str, public_id: str, actor: Actor) -> models.Model:
    referred = next(one for one in _REFERRED if one.model is item.related_model)
    thing = referred.rows(actor).filter(**{item.related_model.public_id_field: public_id}).first()
    if not isinstance(thing, models.Model):
        raise problem(name, f"There is no {referred.model._meta.verbose_name} {public_id!r}.")
    return thing


def _may_be_omitted(item: ModelField) -> bool:
    return bool(item.has_default() or item.null or item.blank)


def _resets(item: ModelField) -> bool:
    """Return whether a field that left the files gets its default. As in a PUT, some keep their values."""
    return _may_be_omitted(item) and not declaration_of(item).kept


def _deviates(item: ModelField, value: Any) -> bool:
    return not _resets(item) or value != plain(item.get_default())
