"""Values of declared fields as one line of text, as in forms, pasted lists, and CSV files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db import models

from controlplane.platform.field_problems import FieldProblem
from controlplane.platform.resource.declared_field import Fields, ModelField, TextList, declaration_of

_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def text_of(field: ModelField, value: Any) -> str:
    """Return a value of the field as text."""
    if items := declaration_of(field).items:
        return items.separator.join(value)
    match value:
        case None:
            return ""
        case bool() | dict() | list():
            return json.dumps(value, sort_keys=True)
        case float():
            return str(value).removesuffix(".0")
        case models.Model():
            return str(getattr(value, getattr(value, "public_id_field", "pk")))
    return str(value)


def texts_of(thing: models.Model, fields: Fields) -> dict[str, str]:
    """Return the object's values of these fields as texts."""
    return {name: text_of(field, getattr(thing, name)) for name, field in fields.items()}


def read_text(field: ModelField, text: str) -> Any:
    """Return the value of a typed text. Raises ValidationError.

    The text of a reference is returned as it is: callers find the object among those that the actor may see.
    """
    text = text.strip()
    items = declaration_of(field).items
    if items is not None:
        parts = text.split(items.separator.strip() or None)
        return checked_items(items, [part.strip() for part in parts if part.strip()])
    if isinstance(field, models.BooleanField):
        return _read_truth(text)
    if isinstance(field, models.ForeignKey):
        return text
    if isinstance(field, models.JSONField) and not text:
        return field.get_default()
    messages = {"required": f"Enter the {_inside(declaration_of(field).title)}."}
    if isinstance(field, models.SlugField):
        messages["invalid"] = "Use letters, digits, - and _."
    control = field.formfield(error_messages=messages)
    if not isinstance(control, forms.Field):
        raise TypeError(f"{field} cannot be typed")
    value = control.clean(text)
    # The control checks the text; length, range, and pattern are rules of the model.
    field.run_validators(value)
    return value


def read_texts(fields: Fields, texts: Mapping[str, str]) -> tuple[dict[str, Any], list[FieldProblem]]:
    """Return the values of these fields, and the problems of those that cannot be read."""
    values: dict[str, Any] = {}
    problems = []
    for name, field in fields.items():
        try:
            values[name] = read_text(field, texts[name])
        except ValidationError as error:
            problems.append(FieldProblem(name, " ".join(error.messages)))
    return values, problems


def checked_items(items: TextList, texts: list[str]) -> list[str]:
    """Return the texts of a list. Raises ValidationError unless they keep its limits."""
    if items.choices and not (texts and set(texts) <= set(items.choices)):
        raise ValidationError(f"Must be one or more of {', '.join(items.choices)}.")
    if not items.least <= len(texts) <= items.most:
        raise ValidationError(f"Must be at most {items.most:,} values.")
    return texts


def _read_truth(text: str) -> bool:
    if text.lower() not in _TRUE + _FALSE:
        raise ValidationError("Must be true or false.")
    return text.lower() in _TRUE


def _inside(title: str) -> str:
    """Return a title as it is written inside a sentence. Abbreviations keep their capitals."""
    return title if title[1:2].isupper() else title[:1].lower() + title[1:]
