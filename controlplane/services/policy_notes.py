"""What is allowed in a policy and yet worth a second look."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from controlplane.services.field_problems import FieldProblem
from controlplane.services.policy_numbers import number_words
from controlplane.services.policy_paths import value_at
from controlplane.services.policy_schema import ObjectSchema, SettingSchema, path_text, policy_schema
from controlplane.services.policy_text import members_of


def notes_on(document: Any) -> tuple[FieldProblem, ...]:
    """Return one note per setting of a valid document that lies outside its usual range."""
    return tuple(
        FieldProblem(
            path_text(setting.path),
            f"{number_words(value)} is outside the usual {number_words(low)} to {number_words(high)}"
            + (f" {setting.unit}" if setting.unit else ""),
        )
        for setting in _settings(policy_schema(), document)
        if setting.usual is not None
        for low, high in [setting.usual]
        for value in [value_at(document, setting.path)]
        if isinstance(value, int | float) and not low <= value <= high
    )


def _settings(schema: ObjectSchema, document: Any) -> Iterator[SettingSchema]:
    for member in schema.members.values():
        if isinstance(member, SettingSchema):
            yield member
        elif isinstance(member, ObjectSchema):
            yield from _settings(member, document)
        else:
            rule = members_of(member, value_at(document, member.path))["params"]
            yield from _settings(rule, document)
