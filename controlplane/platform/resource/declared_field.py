"""What people and programs may do with a field of a model, and how it is called.

A model declares each field once. Type, length, range, choices, and default are those of the Django field; `declared`
adds what Django does not know. A field without `declared` is derived: visible, but set only by the program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias, TypeVar

from django.db import models

ModelField: TypeAlias = "models.Field[Any, Any]"
Fields: TypeAlias = "Mapping[str, ModelField]"
AnyField = TypeVar("AnyField", bound="models.Field[Any, Any]")


class FieldAccess(Enum):
    """Who sets a field, and who may see it."""

    SET = "set"
    """Set at creation, and changed later."""
    FIXED = "fixed"
    """Set at creation, and never changed."""
    DERIVED = "derived"
    """Set by the program."""
    HIDDEN = "hidden"
    """Set by the program, and neither shown nor recorded."""


@dataclass(frozen=True, slots=True)
class TextList:
    """The value of a JSON field is a list of texts, with limits on its items."""

    most: int
    least: int = 0
    length: int = 200
    choices: tuple[str, ...] = ()
    separator: str = ", "
    """Between items in one line of text."""
    ticked: bool = False
    """Whether people tick items in a form, instead of typing them."""


@dataclass(frozen=True, slots=True)
class Declared:
    """A field's title, meaning, and use."""

    title: str
    help: str = ""
    unit: str = ""
    access: FieldAccess = FieldAccess.SET
    kept: bool = False
    """Whether a PUT without the field leaves it unchanged. Any other omitted field gets its default."""
    items: TextList | None = None
    example: str = ""
    aliases: tuple[str, ...] = ()
    """Further names of its column in a pasted list."""


def declared(field: AnyField, title: str, help: str = "", **options: Any) -> AnyField:
    """Return the field with its declaration. `options` are the further fields of Declared."""
    # Not in Django's own help_text and verbose_name: each change of a sentence would need a migration.
    setattr(field, _ATTRIBUTE, Declared(title, help, **options))
    return field


def declaration_of(field: ModelField) -> Declared:
    """Return the field's declaration; that of a derived field if it has none."""
    given: Declared | None = getattr(field, _ATTRIBUTE, None)
    return given or Declared(str(field.verbose_name).capitalize(), access=FieldAccess.DERIVED)


def fields_of(model: type[models.Model]) -> tuple[ModelField, ...]:
    """Return the model's columns and its `computed_fields`, which are properties."""
    return (*model._meta.concrete_fields, *getattr(model, "computed_fields", ()))


def shown_fields(model: type[models.Model]) -> dict[str, ModelField]:
    """Return the fields that readers see, by name."""
    return {
        field.name: field
        for field in fields_of(model)
        if not field.primary_key and declaration_of(field).access is not FieldAccess.HIDDEN
    }


def settable_fields(model: type[models.Model], *, creating: bool = False) -> dict[str, ModelField]:
    """Return the fields that people and programs may change or, if `creating`, set at creation; by name."""
    allowed = (FieldAccess.SET, FieldAccess.FIXED) if creating else (FieldAccess.SET,)
    return {name: field for name, field in shown_fields(model).items() if declaration_of(field).access in allowed}


_ATTRIBUTE = "headway_declared"
