"""The schema of the policy document as a tree, used by the form, the check, and the diff.

It is derived from the types of routing.policy, routing.registry and planning.documents, so that a new setting
automatically appears in the form, the errors, and the diff. A field's help is the `Meta(description=...)` of its type.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import msgspec
from msgspec import inspect

from controlplane.policies.document.whole_policy import WholePolicy
from routing.policy.policy_document import Stage
from routing.policy.setting import fixed_values
from routing.registry import STAGES

Path = tuple[str, ...]


class Absent:
    """Represents a value that is not in a document."""


ABSENT: Final = Absent()

NUMBER, WHOLE, SWITCH, TEXT = "number", "whole", "switch", "text"


@dataclass(frozen=True, slots=True)
class SettingSchema:
    """One setting: its control, texts, and range (None: no bound on that side)."""

    path: Path
    kind: str
    """NUMBER, WHOLE, SWITCH, or TEXT."""
    title: str
    sentence: str
    unit: str = ""
    group: str = ""
    """The section of the form that contains it; empty: the section of its object."""
    low: float | None = None
    high: float | None = None
    above_low: bool = False
    """Whether the lower bound is exclusive."""
    below_high: bool = False
    usual: tuple[float, float] | None = None
    choices: tuple[str, ...] = ()
    """The valid values of a TEXT setting; empty: any text."""
    default: Any = ABSENT
    """ABSENT if the setting is required."""


@dataclass(frozen=True, slots=True)
class ObjectSchema:
    """An object with a fixed set of members."""

    path: Path
    title: str
    sentence: str
    members: dict[str, Node]
    constants: dict[str, Any] = field(default_factory=dict)
    """Names of constants with their values. A document may not contain them."""


@dataclass(frozen=True, slots=True)
class StageSchema:
    """A rule with its name and the parameters of that rule."""

    path: Path
    title: str
    sentence: str
    rules: dict[str, ObjectSchema]
    """Rule name → schema. The members are the rule's parameters, the sentence describes the rule."""
    default: dict[str, Any] | Absent = field(default=ABSENT)

    @property
    def name_path(self) -> Path:
        """Return the path of the rule's name."""
        return (*self.path, "name")

    @property
    def params_path(self) -> Path:
        """Return the path of the rule's parameters."""
        return (*self.path, "params")


@dataclass(frozen=True, slots=True)
class MapSchema:
    """An object with names chosen by people. All values have the same schema."""

    path: Path
    title: str
    sentence: str
    entry: ObjectSchema | SettingSchema
    """The schema of each value. Its paths begin at the name."""
    name_pattern: str
    """A regular expression that each name must match completely; empty: any name."""
    most: int | None
    """Maximum number of names."""
    default: Any = ABSENT


Node = SettingSchema | ObjectSchema | StageSchema | MapSchema


@cache
def policy_schema() -> ObjectSchema:
    """Return the schema of the whole policy document."""
    return _object(WholePolicy, (), "Policy", "")


def path_text(path: Path) -> str:
    """Return a path as text: placement.params.beta; empty for the whole document."""
    return ".".join(path)


def _object(kind: type[msgspec.Struct], path: Path, title: str, sentence: str) -> ObjectSchema:
    info = inspect.type_info(kind)
    if not isinstance(info, inspect.StructType):
        raise TypeError(f"{kind} is no object")
    members = {item.encode_name: _member(item, (*path, item.encode_name)) for item in info.fields}
    constants = {
        name: getattr(kind, name)
        for base in kind.__mro__
        for name, annotation in getattr(base, "__annotations__", {}).items()
        if str(annotation).startswith("ClassVar")
    }
    return ObjectSchema(path, title, sentence, members, constants)


def _member(field_: inspect.Field, path: Path) -> Node:
    kind = field_.type
    words: dict[str, Any] = {}
    while isinstance(kind, inspect.Metadata):
        words = {**(kind.extra_json_schema or {}), **words}
        kind = kind.type
    title = words.get("title") or _title_of(path[-1])
    sentence = words.get("description", "")
    default = _default(field_)
    if isinstance(kind, inspect.StructType):
        if kind.cls is Stage:
            return StageSchema(path, title, sentence, _rules(path), default)
        return _object(kind.cls, path, title, sentence)
    if isinstance(kind, inspect.DictType):
        return _map(kind, path, title, sentence, default)
    return _setting(kind, path, title, sentence, words, default)


def _map(kind: inspect.DictType, path: Path, title: str, sentence: str, default: Any) -> MapSchema:
    names, entry = kind.key_type, kind.value_type
    words: dict[str, Any] = {}
    while isinstance(entry, inspect.Metadata):
        words, entry = {**(entry.extra_json_schema or {}), **words}, entry.type
    while isinstance(names, inspect.Metadata):
        names = names.type
    pattern = (names.pattern if isinstance(names, inspect.StrType) else None) or ""
    if isinstance(entry, inspect.StructType):
        return MapSchema(path, title, sentence, _object(entry.cls, (), title, ""), pattern, kind.max_length, default)
    setting = _setting(entry, (), words.get("title") or title, words.get("description", ""), words, ABSENT)
    return MapSchema(path, title, sentence, setting, pattern, kind.max_length, default)


def _setting(kind: Any, path: Path, title: str, sentence: str, words: dict[str, Any], default: Any) -> SettingSchema:
    if isinstance(kind, inspect.BoolType):
        return SettingSchema(path, SWITCH, title, sentence, group=words.get("x-group", ""), default=default)
    if not isinstance(kind, inspect.IntType | inspect.FloatType):
        choices = tuple(str(value) for value in kind.values) if isinstance(kind, inspect.LiteralType) else ()
        group = words.get("x-group", "")
        return SettingSchema(path, TEXT, title, sentence, group=group, choices=choices, default=default)
    return SettingSchema(
        path,
        WHOLE if isinstance(kind, inspect.IntType) else NUMBER,
        title,
        sentence,
        unit=words.get("x-unit", ""),
        group=words.get("x-group", ""),
        low=kind.gt if kind.gt is not None else kind.ge,
        high=kind.lt if kind.lt is not None else kind.le,
        above_low=kind.gt is not None,
        below_high=kind.lt is not None,
        usual=tuple(words["x-usual"]) if "x-usual" in words else None,
        default=default,
    )


def _rules(path: Path) -> dict[str, ObjectSchema]:
    """Return the settings of each rule of the stage. A rule's sentence is the first line of its docstring."""
    params = (*path, "params")
    rules = {
        name: _object(kind, params, name, (kind.__doc__ or "").strip().partition("\n")[0])
        for name, kind in STAGES[path[-1]].items()
    }
    for name, rule in rules.items():
        rule.constants.update(fixed_values(STAGES[path[-1]][name]))
        for fixed in rule.constants:
            del rule.members[fixed]
    return rules


def _default(field_: inspect.Field) -> Any:
    if field_.default is not msgspec.NODEFAULT:
        return field_.default
    if field_.default_factory is not msgspec.NODEFAULT:
        return msgspec.to_builtins(field_.default_factory())
    return ABSENT


def _title_of(name: str) -> str:
    """Return a title for a setting without one: prompt_tokens becomes Prompt tokens."""
    return re.sub(r"_+", " ", name).strip().capitalize()
