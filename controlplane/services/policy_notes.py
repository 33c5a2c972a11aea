"""What is allowed in a policy and yet worth a second look."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from controlplane.services.field_problems import FieldProblem
from controlplane.services.policy_numbers import number_words
from controlplane.services.policy_paths import value_at
from controlplane.services.policy_schema import MapSchema, ObjectSchema, Path, SettingSchema, path_text, policy_schema
from controlplane.services.policy_text import members_of


def vain_settings(document: Any) -> Iterator[FieldProblem]:
    """Yield a note for each thing that a valid document, as it was written, asks for and no live pool does."""
    if value_at(document, ("placement", "name")) == "mooncake":
        yield FieldProblem("placement", "no live engine fetches blocks from others, so this chooses as min_ttft does")


def notes_on(document: Any) -> tuple[FieldProblem, ...]:
    """Return one note per setting of a valid document that lies outside its usual range and is not the default."""
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
    """Yield each setting with its place in the document; `above` is where the schema's own paths begin."""
    for member in schema.members.values():
        if isinstance(member, SettingSchema):
            yield (*above, *member.path), member
        elif isinstance(member, ObjectSchema):
            yield from _settings(member, document, above)
        elif isinstance(member, MapSchema):
            for name in members_of(member, value_at(document, member.path)):
                place = (*above, *member.path, name)
                if isinstance(member.entry, SettingSchema):
                    yield place, member.entry
                else:
                    yield from _settings(member.entry, document, place)
        else:
            rule = members_of(member, value_at(document, member.path))["params"]
            yield from _settings(rule, document)
