"""Forms of objects, derived from the declared fields of their models: controls, typed values, and conflicting edits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.db import models
from django.http import QueryDict
from django.utils import timezone

from controlplane.manifests.ownership import managers_by_field
from controlplane.platform.field_problems import FieldProblem
from controlplane.platform.format import date_time, zone_name
from controlplane.platform.resource.declared_field import Fields, ModelField, declaration_of
from controlplane.platform.resource.field_text import read_texts, text_of
from web.shell.form_field import CHECKS, END, NUMBER, SELECT, TEXT, FieldOption, FormField

MAX_TEXT = 400
MAX_LIST = 4000
TIME_LENGTH = 32
ON = "on"
SOON = tuple(FieldOption(str(minutes), words) for minutes, words in ((30, "30 min"), (120, "2 h"), (480, "8 h")))
"""Usual ends from now, in minutes, of a field that needs an end."""

Options = Mapping[str, Iterable[FieldOption]]


def form_fields(fields: Fields, thing: models.Model | None = None, options: Options | None = None) -> list[FormField]:
    """Return the controls with the values of a stored object or, without one, the defaults.

    `options` are the choices of references, and of lists whose items have names, by field. Controls of a stored object
    state which files manage them.
    """
    managed = managers_by_field(thing) if thing is not None else {}
    return [
        replace(_form_field(field, thing, tuple((options or {}).get(name, ()))), managed=managed.get(name, ""))
        for name, field in fields.items()
    ]


def _form_field(field: ModelField, thing: models.Model | None, given: tuple[FieldOption, ...]) -> FormField:
    words, choices = declaration_of(field), given or _choices(field)
    value = getattr(thing, field.name) if thing is not None else field.get_default()
    empty = field.blank or field.null
    if isinstance(field, models.BooleanField):
        switch = FieldOption(ON, words.title, words.help)
        return FormField(field.name, "", CHECKS, options=(switch,), chosen=(ON,) if value else ())
    if words.items and words.items.ticked:
        return FormField(field.name, words.title, CHECKS, help=words.help, options=choices, chosen=tuple(value))
    if isinstance(field, models.DateTimeField) and not empty:
        return _end_field(field, value)
    text = text_of(field, value)
    numeric, is_time = isinstance(field, models.IntegerField), isinstance(field, models.DateTimeField)
    return FormField(
        field.name,
        words.title,
        SELECT if choices else NUMBER if numeric else TEXT,
        # The API names an object by its slug; here it is chosen.
        help="" if given else words.help,
        unit=words.unit,
        options=choices,
        chosen=(text if text or not choices else choices[0].value,),
        required=not empty,
        limit=MAX_LIST if words.items else field.max_length or (TIME_LENGTH if is_time else 12),
        example=words.example,
        optional=empty and not choices,
    )


def _end_field(field: ModelField, value: datetime | None) -> FormField:
    """Return the control of an end: a time from now by one choice, or a time of the person's zone."""
    return FormField(
        field.name,
        declaration_of(field).title,
        END,
        help=f"Other: a time in {zone_name()}.",
        options=SOON,
        soon="" if value else SOON[0].value,
        chosen=(timezone.localtime(value).strftime("%Y-%m-%dT%H:%M:%S") if value else "",),
    )


def typed_values(fields: Fields, posted: QueryDict) -> tuple[dict[str, Any], list[FieldProblem]]:
    """Return the submitted values, and the problems of those that cannot be read.

    Optional fields that were not sent are omitted, but an unticked box is a value.
    """
    texts = {name: text for name, field in fields.items() if (text := _typed_text(field, posted)) is not None}
    return read_texts({name: fields[name] for name in texts}, texts)


def typed_changes(values: Mapping[str, Any], fields: Fields, posted: QueryDict) -> dict[str, Any]:
    """Return the values that differ from those that the person saw, which the form sent back as `was_…`."""
    return {name: value for name, value in values.items() if text_of(fields[name], value) != posted.get(f"was_{name}")}


def merged(
    fields: Fields, posted: QueryDict, stored: Mapping[str, str]
) -> tuple[dict[str, list[str]], list[dict[str, Any]]]:
    """Return the typed values merged onto the stored ones, and a line for each field that either side changed."""
    values: dict[str, list[str]] = {}
    lines = []
    for name, field in fields.items():
        other = stored[name]
        base, typed = posted.get(f"was_{name}", other), _typed_text(field, posted)
        mine = other if typed is None else typed
        kept = other if mine == base else mine
        values[name] = _chosen(field, kept)
        if not base == other == mine:
            both = mine not in (base, other) and other != base
            line = {"label": declaration_of(field).title, "base": base, "theirs": other, "mine": mine, "both": both}
            lines.append(line | {"take_theirs": kept == other != mine, "take_mine": kept == mine != other})
    return values, lines


def _chosen(field: ModelField, text: str) -> list[str]:
    """Return the ticked or typed values of the control that show this text."""
    if isinstance(field, models.BooleanField):
        return [ON] if text == "true" else []
    items = declaration_of(field).items
    return text.split(items.separator) if items and items.ticked else [text]


def _typed_text(field: ModelField, posted: QueryDict) -> str | None:
    """Return the submitted text; None if the field was not sent."""
    if isinstance(field, models.BooleanField):
        return text_of(field, bool(posted.get(field.name)))
    items = declaration_of(field).items
    if items and items.ticked:
        return items.separator.join(posted.getlist(field.name))
    soon = posted.get(f"{field.name}_in", "")
    if isinstance(field, models.DateTimeField) and soon in {option.value for option in SOON}:
        return (timezone.now() + timedelta(minutes=int(soon))).isoformat(timespec="seconds")
    needed = not (field.blank or field.null or field.has_default())
    text = posted.get(field.name, "" if needed else None)
    return None if text is None else text.strip()[: MAX_LIST if items else MAX_TEXT]


def facts(fields: Fields, thing: models.Model) -> list[tuple[str, str]]:
    """Return the title and the value of each field as people read it."""
    return [(declaration_of(field).title, _fact(field, thing)) for field in fields.values()]


def _fact(field: ModelField, thing: models.Model) -> str:
    value = getattr(thing, field.name)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return f"{date_time(value, 'seconds')} {zone_name()}"
    if field.choices:
        return str(dict(field.flatchoices)[value])
    text, unit = text_of(field, value), declaration_of(field).unit
    return f"{text}{'' if unit in ('×', '%') else ' '}{unit}".strip() if text else "—"


def _choices(field: ModelField) -> tuple[FieldOption, ...]:
    items = declaration_of(field).items
    if items and items.choices:
        return tuple(FieldOption(choice, choice) for choice in items.choices)
    return tuple(FieldOption(str(value), str(label)) for value, label in field.flatchoices or ())
