"""Versions, times, and changes in words for the policy pages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from controlplane.platform.format import NARROW_SPACE, NO_BREAK_SPACE, UNKNOWN, moment_of, some_names
from controlplane.policies.document.merge import ChangedEntry
from controlplane.policies.document.paths import value_at
from controlplane.policies.document.schema import (
    Absent,
    MapSchema,
    Node,
    ObjectSchema,
    Path,
    SettingSchema,
    StageSchema,
    path_text,
    policy_schema,
)
from controlplane.policies.document.text import value_text
from controlplane.policies.models.policy_version import PolicyVersion

PROGRAM = "Headway"
"""Author name of versions that the program itself created."""

_LISTED_CHANGES = 3
"""Number of changes that a line names; the others are only counted."""


@dataclass(frozen=True, slots=True)
class ChangeLine:
    """One change in words."""

    path: str
    title: str
    was: str
    now: str


def author_of(version: PolicyVersion) -> str:
    """Return who wrote the version."""
    return version.author.get_username() if version.author else PROGRAM


def version_facts(version: PolicyVersion | None, now: datetime) -> dict[str, Any] | None:
    """Return the version's facts for the page: author, time, and base; None without a version."""
    if version is None:
        return None
    return {
        "number": version.number,
        "author": author_of(version),
        "at": moment_of(version.published_at or version.created_at, now),
        "message": version.message,
        "based_on": version.based_on,
        "copies": version.copies,
        "is_draft": version.published_at is None,
    }


def change_lines(changes: Iterable[ChangedEntry]) -> list[ChangeLine]:
    """Return each change with its title, its old value and its new one."""
    lines = []
    for change in changes:
        title, unit = title_and_unit(change.path)
        lines.append(
            ChangeLine(path_text(change.path), title, value_words(change.base, unit), value_words(change.mine, unit))
        )
    return lines


def change_summary(changes: Iterable[ChangedEntry]) -> str:
    """Return changes in one line, such as "TTFT objective 5 → 2, Queue order fifo → late_last and 2 more"."""
    return some_names([f"{line.title} {line.was} → {line.now}" for line in change_lines(changes)], _LISTED_CHANGES)


def title_and_unit(path: Path) -> tuple[str, str]:
    """Return the form's title and unit of the value at this path; the path itself if the form has no field for it."""
    node: Node = policy_schema()
    for depth, name in enumerate(path):
        if isinstance(node, StageSchema):
            return _title_in_stage(node, path[depth:])
        if isinstance(node, MapSchema):
            node = node.entry
            continue
        member = node.members.get(name) if isinstance(node, ObjectSchema) else None
        if member is None:
            return path_text(path), ""
        node = member
    return node.title, node.unit if isinstance(node, SettingSchema) else ""


def value_words(value: Any, unit: str = "") -> str:
    """Return a value for a sentence: a rule as name and parameters, a number in JSON form with its unit."""
    if isinstance(value, Absent):
        return UNKNOWN
    if isinstance(value, str):
        return value
    name = value_at(value, ("name",))
    if not isinstance(name, str):
        return f"{value_text(value)}{_gap(unit)}{unit}" if unit else value_text(value)
    params = value_at(value, ("params",))
    settings = (
        ", ".join(f"{key} {value_text(item)}" for key, item in params.items()) if isinstance(params, dict) else ""
    )
    return f"{name} ({settings})" if settings else name


def _gap(unit: str) -> str:
    """Return the space before a unit: a narrow one before a symbol, a no-break space before a word."""
    return NARROW_SPACE if len(unit) <= len("ms") else NO_BREAK_SPACE


def _title_in_stage(stage: StageSchema, rest: Path) -> tuple[str, str]:
    """Return the title of a rule's name or of one of its parameters."""
    parameter = rest[1] if len(rest) == 2 and rest[0] == "params" else ""
    for rule in stage.rules.values():
        member = rule.members.get(parameter)
        if member is not None:
            return member.title, member.unit if isinstance(member, SettingSchema) else ""
    return (stage.title if rest == ("name",) else path_text((*stage.path, *rest))), ""
