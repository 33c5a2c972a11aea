"""Warnings about settings that are valid but unusual."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from controlplane.platform.field_problems import FieldProblem
from controlplane.policies.document.numbers import number_words
from controlplane.policies.document.paths import value_at
from controlplane.policies.document.schema import (
    ABSENT,
    Absent,
    MapSchema,
    ObjectSchema,
    Path,
    SettingSchema,
    StageSchema,
    path_text,
    policy_schema,
)
from controlplane.policies.document.text import members_of, value_text


def vain_settings(document: Any) -> Iterator[FieldProblem]:
    """Yield a note for each setting that a valid document requests and no live pool supports."""
    if value_at(document, ("placement", "name")) == "mooncake":
        message = "no live engine fetches blocks from others, so this compares the engines' own caches only"
        yield FieldProblem("placement", message)


def missing_keys(document: Any) -> Iterator[FieldProblem]:
    """Yield a note for each path that a valid document omits, with a single note for an omitted object."""
    yield from _missing(policy_schema(), document)


def _missing(schema: ObjectSchema, document: Any) -> Iterator[FieldProblem]:
    for name, member in schema.members.items():
        if name == "schema_version" or isinstance(member, MapSchema):
            continue
        if isinstance(value_at(document, member.path), Absent):
            default = getattr(member, "default", ABSENT)
            effect = f"default {value_text(default)} applies" if isinstance(member, SettingSchema) else "defaults apply"
            yield FieldProblem(path_text(member.path), f"is missing, so its {effect}")
        elif isinstance(member, StageSchema):
            params = members_of(member, value_at(document, member.path))["params"]
            yield from _missing(params, document)
        elif isinstance(member, ObjectSchema):
            yield from _missing(member, document)


def notes_on(document: Any) -> tuple[FieldProblem, ...]:
    """Return one note per setting of a valid document that is outside its usual range and differs from the default."""
    return tuple(
        FieldProblem(
            path_text(path),
            f"{number_words(value)} is outside the usual {number_words(low)} to {number_words(high)}"
            + (f" {setting.unit}" if setting.unit else ""),
        )
        for path, setting in _settings(policy_schema(), document)
        if setting.usual is not None
        for low, high in [setting.usual]
        for value in [value_at(document, path)]
        if isinstance(value, int | float) and not low <= value <= high and value != setting.default
    )


def _settings(schema: ObjectSchema, document: Any, above: Path = ()) -> Iterator[tuple[Path, SettingSchema]]:
    """Yield each setting with its path in the document. `above` is the path at which the schema's paths begin."""
    for member in schema.members.values():
        if isinstance(member, SettingSchema):
            yield (*above, *member.path), member
        elif isinstance(member, ObjectSchema):
            yield from _settings(member, document, above)
        elif isinstance(member, MapSchema):
            for name in members_of(member, value_at(document, member.path)):
                path = (*above, *member.path, name)
                if isinstance(member.entry, SettingSchema):
                    yield path, member.entry
                else:
                    yield from _settings(member.entry, document, path)
        else:
            rule = members_of(member, value_at(document, member.path))["params"]
            yield from _settings(rule, document)
