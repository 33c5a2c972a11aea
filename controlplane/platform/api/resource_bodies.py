"""Derives views, request bodies, and responses, and so the OpenAPI document, from resources and their fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from rest_framework import serializers
from typing_extensions import override

from controlplane.platform.api.listing import Filter, Listing
from controlplane.platform.api.strict_fields import (
    ChangeBody,
    Document,
    ModelShape,
    Named,
    Number,
    Text,
    Truth,
    WholeNumber,
)
from controlplane.platform.api.views import Changeable, Creatable, Deletable, ObjectView, Shape, by_method
from controlplane.platform.resource.declared_field import (
    Declared,
    ModelField,
    TextList,
    declaration_of,
    settable_fields,
    shown_fields,
)
from controlplane.platform.resource.resource import Resource


class ResourceShape(ModelShape):
    """All fields that readers see. Fields that a subclass declares are added before the revision."""

    @override
    def get_field_names(self, declared_fields: Any, info: Any) -> list[str]:
        """Return the names of the fields."""
        shown = [name for name in shown_fields(self.Meta.model) if name != "revision"]
        return [*shown, *(name for name in declared_fields if name not in shown), "revision"]

    @override
    def get_extra_kwargs(self) -> dict[str, dict[str, Any]]:
        """Return keyword arguments that make every field read-only."""
        return {name: {"read_only": True} for name in shown_fields(self.Meta.model)}

    @override
    def build_standard_field(self, field_name: str, model_field: Any) -> tuple[Any, dict[str, Any]]:
        """Return the field of a stored value. JSON values are the declared list or an object."""
        if not isinstance(model_field, models.JSONField):
            return super().build_standard_field(field_name, model_field)
        items = declaration_of(model_field).items
        return (serializers.ListField, {"child": _item(items)}) if items else (serializers.DictField, {})


def new_body(model: type[models.Model], **others: serializers.Field) -> type[ChangeBody]:
    """Return the body that creates an object. `others` replace or add fields."""
    fields = {**input_fields(model, creating=True), **others}
    return type(f"New{model.__name__}", (ChangeBody,), {**fields, "__doc__": "Values of a new object."})


def change_body(model: type[models.Model], **others: serializers.Field) -> type[ChangeBody]:
    """Return the body of PUT and PATCH. `others` replace or add fields."""
    fields = {**input_fields(model), **others}
    return type(f"{model.__name__}Change", (ChangeBody,), {**fields, "__doc__": "Writable fields."})


def object_views(
    resource: Resource, title: str, *filters: tuple[str, Filter], shape: Shape | None = None, order: Sequence[str] = ()
) -> tuple[type[Creatable], type[ObjectView]]:
    """Return the views of all objects and of one; `title` is the words for one, in lower case.

    An irregular plural follows after a comma.
    Without `shape`, responses have the fields that readers see. Without `order`, the public id orders the list.
    """
    title, _, plural = title.partition(",")
    plural = plural or f"{title}s"
    model, name, change = resource.model, "".join(title.title().split()), change_body(resource.model)
    order = order or (model.public_id_field,)
    meta = {"Meta": type("Meta", (), {"model": model}), "__doc__": model.__doc__}
    shared = {"resource": resource, "shape": shape or type(f"{model.__name__}Shape", (ResourceShape,), meta)}
    many: dict[str, Any] = {
        "says": by_method(GET=f"List {plural}.", POST=f"Create {'an' if title[0] in 'aeiou' else 'a'} {title}."),
        "bodies": by_method(POST=new_body(model)),
        "listing": Listing({order[0]: tuple(order)}, order[0], dict(filters)),
    }
    one = {"bodies": by_method(PUT=change, PATCH=change)}
    return (
        type(f"{''.join(plural.title().split())}View", (Creatable,), shared | many),
        type(f"One{name}", (Changeable, Deletable) if resource.deleted else (Changeable,), shared | one),
    )


def input_fields(
    model: type[models.Model], *, creating: bool = False, optional: bool = False
) -> dict[str, serializers.Field]:
    """Return the fields of a body, by name. If `optional`, every field may be missing and has no default."""
    return {
        name: _input(field, declaration_of(field), optional=optional)
        for name, field in settable_fields(model, creating=creating).items()
    }


def _input(field: ModelField, declared: Declared, *, optional: bool) -> serializers.Field:
    options: dict[str, Any] = {"help_text": declared.help} if declared.help else {}
    if optional or declared.kept:
        options["required"] = False
        if declared.kept and "Omitted" not in declared.help:
            options["help_text"] = f"{declared.help} Omitted: unchanged."
    elif declared.items:
        options["default"] = tuple(field.get_default())
    elif field.has_default() or field.null or field.blank:
        options["default"] = field.default if field.has_default() else None if field.null else ""
    if field.null:
        options["allow_null"] = True
    if field.choices:
        return serializers.ChoiceField(choices=field.choices, **options)
    if declared.items:
        options |= {"min_length": declared.items.least} if declared.items.least else {}
        return serializers.ListField(child=_input_item(declared.items), max_length=declared.items.most, **options)
    if isinstance(field, models.ForeignKey):
        return Named(
            slug_field=field.related_model.public_id_field, queryset=field.related_model.objects.all(), **options
        )
    return _typed(field, options)


def _typed(field: ModelField, options: dict[str, Any]) -> serializers.Field:
    if isinstance(field, models.CharField):
        return Text(max_length=field.max_length, allow_blank=field.blank, **options)
    if isinstance(field, models.BooleanField):
        return Truth(**options)
    if isinstance(field, models.JSONField):
        return Document(**options)
    if isinstance(field, models.DateTimeField):
        return serializers.DateTimeField(**options)
    kind = Number if isinstance(field, models.FloatField) else WholeNumber
    # Those of the column's type, which databases enforce, are among them.
    low = [rule.limit_value for rule in field.validators if isinstance(rule, MinValueValidator)]
    high = [rule.limit_value for rule in field.validators if isinstance(rule, MaxValueValidator)]
    bounds = {"min_value": max(low)} if low else {}
    return kind(**bounds, **({"max_value": min(high)} if high else {}), **options)


def _input_item(items: TextList) -> serializers.Field:
    return serializers.ChoiceField(choices=items.choices) if items.choices else Text(max_length=items.length)


def _item(items: TextList) -> serializers.Field:
    return serializers.ChoiceField(choices=items.choices) if items.choices else serializers.CharField()
