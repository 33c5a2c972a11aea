"""The policy as a form: converts a document to groups of settings, and posted texts to a document.

A field's title and help text are its `Meta` in routing.policy or planning.documents. Pure: documents and texts in,
values out. An empty setting is omitted from the document, so that the default applies. An unreadable value is kept as
typed, with its problem.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from controlplane.platform.format import some_names
from controlplane.policies.document.numbers import json_number, number_words
from controlplane.policies.document.paths import same_value, value_at, with_value
from controlplane.policies.document.schema import (
    ABSENT,
    NUMBER,
    SWITCH,
    TEXT,
    WHOLE,
    Absent,
    MapSchema,
    ObjectSchema,
    SettingSchema,
    StageSchema,
    path_text,
    policy_schema,
)
from controlplane.policies.document.text import value_text

CHOICE = "choice"
"""A control kind that is not in the schema: one of several names."""

ON = "on"

_NUMBER = re.compile(r"\s*-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d{1,3})?\s*")
_NAMED = 8
"""Maximum number of names of a map listed in its line of the form."""
_HIDDEN = frozenset({"schema_version"})
"""Members written by the program, never by people."""


@dataclass(frozen=True, slots=True)
class NumberRange:
    """The allowed numbers of a setting, as a browser reads them; an empty bound is no bound."""

    low: str
    high: str
    above_low: bool
    below_high: bool


@dataclass(frozen=True, slots=True)
class PolicyFormField:
    """One control. `path` is its name in the posted form; `key` is unique on the page and used as id."""

    path: str
    key: str
    kind: str
    title: str
    sentence: str
    unit: str
    range_words: str
    usual_words: str
    default: str
    """The value that applies if the control is empty; empty for a required setting."""
    value: str
    live: str
    """The live version's value; empty if the live version lacks the setting."""
    choices: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    """Problems with the entered text."""
    range: NumberRange | None = None
    """The allowed numbers, for the check while typing; None for other kinds."""

    @property
    def id(self) -> str:
        """Return the control's id on the page."""
        return f"field-{self.key}"

    @property
    def changed(self) -> bool:
        """Return whether the value differs from the live version.

        A setting that the live version lacks counts as changed.
        """
        return self.value != self.live


@dataclass(frozen=True, slots=True)
class FormRule:
    """The parameters of one rule of a stage. Only the parameters of the chosen rule apply."""

    name: str
    sentence: str
    chosen: bool
    fields: tuple[PolicyFormField, ...]


@dataclass(frozen=True, slots=True)
class FormGroup:
    """One section of the form."""

    title: str
    sentence: str
    fields: tuple[PolicyFormField, ...]
    rules: tuple[FormRule, ...] = ()
    path: str = ""
    """The stage of the rules; empty for other groups."""


def form_groups(document: Any, live: Any) -> tuple[FormGroup, ...]:
    """Return the form for a document, which may be invalid. `live` is the reference for "was"."""
    return tuple(_groups(policy_schema(), document, live))


def form_group(document: Any, path: str) -> FormGroup:
    """Return the section of the form for a stage."""
    stage = policy_schema().members[path]
    if not isinstance(stage, StageSchema):
        raise KeyError(path)
    return _stage_group(stage, document, {})


def typed_document(document: Any, shown: Any, posted: Mapping[str, str]) -> Any:
    """Return the document with the changes that the user made to the form, which displayed `shown`.

    Unchanged fields keep the JSON's value.
    """
    said, written = as_posted(shown), document
    for group in form_groups(shown, shown) if isinstance(document, dict) else ():
        document = _with_typed(document, group.fields, said, posted)
        if group.path:
            document = _without_strangers(document, shown, group.path)
            # From the document as changed so far: the rule that was just chosen decides whose controls count.
            stage = form_group(document, group.path)
            name, named = stage.fields[0].value, (group.path, "name")
            for rule in group.rules:
                if rule.name == name:
                    by_form = not same_value(value_at(written, named), value_at(document, named))
                    document = _with_typed(document, rule.fields, said, posted, by_form=by_form)
    return document


def as_posted(document: Any) -> dict[str, str]:
    """Return the data that a browser sends for this document's unedited form."""
    return {
        item.path: item.value
        for group in form_groups(document, document)
        for item in (*group.fields, *(field for rule in group.rules if rule.chosen for field in rule.fields))
    }


def _groups(schema: ObjectSchema, document: Any, live: Any) -> Iterator[FormGroup]:
    groups: dict[str, FormGroup] = {}
    for name, member in schema.members.items():
        if isinstance(member, StageSchema):
            groups[name] = _stage_group(member, document, live)
        elif isinstance(member, ObjectSchema) and _is_chapter(member):
            for part in member.members.values():
                if isinstance(part, ObjectSchema):
                    groups[path_text(part.path)] = _object_group(part, document, live)
        elif isinstance(member, ObjectSchema):
            groups[name] = _object_group(member, document, live)
        elif isinstance(member, MapSchema):
            groups[name] = FormGroup(member.title, _map_words(member, document), ())
        elif name not in _HIDDEN:
            title = member.group or schema.title
            before = groups.get(title, FormGroup(title, "", ()))
            groups[title] = FormGroup(title, "", (*before.fields, _field(member, document, live)))
    yield from groups.values()


def _is_chapter(schema: ObjectSchema) -> bool:
    """Return whether an object contains only objects, so that each of them is a section of the form."""
    return all(isinstance(member, ObjectSchema) for name, member in schema.members.items() if name not in _HIDDEN)


def _object_group(schema: ObjectSchema, document: Any, live: Any) -> FormGroup:
    maps = [_map_words(member, document) for member in schema.members.values() if isinstance(member, MapSchema)]
    sentence = " ".join((schema.sentence, *maps))
    return FormGroup(schema.title, sentence, tuple(_fields(schema, document, live)))


def _map_words(schema: MapSchema, document: Any) -> str:
    """Return a map's purpose, its names, and where to change them, because the form has no controls for maps."""
    value = value_at(document, schema.path)
    names = some_names(sorted(value), _NAMED) if isinstance(value, dict) else ""
    status = f"Set for {names}" if names else "None is set"
    return f"{schema.title}: {schema.sentence} {status}; change them in the JSON, under {path_text(schema.path)}."


def _stage_group(stage: StageSchema, document: Any, live: Any) -> FormGroup:
    default = _name_text(stage.default.get("name", "")) if isinstance(stage.default, dict) else ""
    absent = isinstance(value_at(document, stage.path), Absent)
    chosen = default if absent else _name_text(value_at(document, stage.name_path))
    # An omitted stage runs as the policy's default, which need not be the rule's own.
    meant = with_value(document, stage.path, stage.default) if absent else document
    names = tuple(stage.rules)
    name = PolicyFormField(
        path=path_text(stage.name_path),
        key="-".join(stage.name_path),
        kind=CHOICE,
        title="Rule",
        sentence=stage.sentence,
        unit="",
        range_words="",
        usual_words="",
        default=default,
        value=chosen,
        live=_name_text(value_at(live, stage.name_path)),
        choices=names if chosen in names else (*names, chosen),
    )
    rules = []
    for rule_name, rule in stage.rules.items():
        was = live if rule_name == name.live else {}
        # A rule that is not chosen shows its values if chosen: the live settings, or its defaults.
        source = meant if rule_name == chosen else was or ABSENT
        fields = tuple(_fields(rule, source, was, key=rule_name))
        rules.append(FormRule(rule_name, rule.sentence, rule_name == chosen, fields))
    return FormGroup(stage.title, stage.sentence, (name,), tuple(rules), path_text(stage.path))


def _fields(schema: ObjectSchema, document: Any, live: Any, *, key: str = "") -> Iterator[PolicyFormField]:
    """Yield the settings of an object and its nested objects. Without a document (ABSENT), yield the defaults."""
    for member in schema.members.values():
        if isinstance(member, ObjectSchema):
            yield from _fields(member, document, live, key=key)
        elif isinstance(member, SettingSchema):
            yield _field(member, document, live, key=key)


def _field(setting: SettingSchema, document: Any, live: Any, *, key: str = "") -> PolicyFormField:
    value = setting.default if isinstance(document, Absent) else value_at(document, setting.path)
    return PolicyFormField(
        path=path_text(setting.path),
        key="-".join((key, *setting.path) if key else setting.path),
        kind=setting.kind,
        title=setting.title,
        sentence=setting.sentence,
        unit=setting.unit,
        range_words=_range_words(setting),
        usual_words=_span_words(*setting.usual) if setting.usual else "",
        default=_control_text(setting.default, setting.kind),
        value=_control_text(value, setting.kind),
        live=_control_text(value_at(live, setting.path), setting.kind),
        choices=_with_shown(setting.choices, _control_text(value, setting.kind)),
        range=_range(setting),
    )


def _with_shown(choices: tuple[str, ...], shown: str) -> tuple[str, ...]:
    """Return the choices of a select control. An invalid value remains among them."""
    return choices if not choices or shown in choices else (*choices, shown)


def _with_typed(
    document: Any,
    fields: tuple[PolicyFormField, ...],
    said: Mapping[str, str],
    posted: Mapping[str, str],
    *,
    by_form: bool = False,
) -> Any:
    """Return the document with the controls' values.

    `by_form`: the form selected their rule, so the JSON lacks them.
    """
    for field in fields:
        text, path = posted.get(field.path), tuple(field.path.split("."))
        # An empty control leaves an omitted path omitted; it does not even switch it off.
        unstated = not (text or by_form) and isinstance(value_at(document, path), Absent)
        if text is not None and text != said.get(field.path) and not unstated:
            document = with_value(document, path, _read(text, field.kind))
    return document


def _without_strangers(document: Any, shown: Any, stage: str) -> Any:
    """Return the document without parameters of the previously chosen rule."""
    name_path, params_path = (stage, "name"), (stage, "params")
    name = value_at(document, name_path)
    if same_value(name, value_at(shown, name_path)):
        return document
    schema = policy_schema().members[stage]
    rule = schema.rules.get(name) if isinstance(schema, StageSchema) and isinstance(name, str) else None
    params, before = value_at(document, params_path), value_at(shown, params_path)
    if rule is None or not isinstance(params, dict) or not isinstance(before, dict):
        return document
    kept = {key: value for key, value in params.items() if key in rule.members or key not in before}
    return with_value(document, params_path, kept)


def _read(text: str, kind: str) -> Any:
    """Return the value of the text: ABSENT for an empty text, the text itself if it is not a number."""
    if kind == SWITCH:
        return text == ON
    if kind in (TEXT, CHOICE):
        return text
    if not text.strip():
        return ABSENT
    match = _NUMBER.fullmatch(text)
    if match is None:
        return text.strip()
    return float(text) if match[2] or match[3] else int(text)


def _control_text(value: Any, kind: str) -> str:
    if isinstance(value, Absent):
        return ""
    if kind == SWITCH and isinstance(value, bool):
        return ON if value else ""
    return value if isinstance(value, str) else value_text(value)


def _name_text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _range(setting: SettingSchema) -> NumberRange | None:
    if setting.kind not in (NUMBER, WHOLE):
        return None
    low, high = ("" if bound is None else json_number(bound) for bound in (setting.low, setting.high))
    return NumberRange(low, high, setting.above_low, setting.below_high)


def _range_words(setting: SettingSchema) -> str:
    if setting.kind not in (NUMBER, WHOLE):
        return ""
    low, high = setting.low, setting.high
    unit = f" {setting.unit}" if setting.unit else ""
    if low is not None and high is not None:
        if setting.above_low:
            return f"above {number_words(low)}, up to {number_words(high)}{unit}"
        return f"{number_words(low)} to {number_words(high)}{unit}"
    if low is not None:
        return f"{'above' if setting.above_low else 'at least'} {number_words(low)}{unit}"
    return f"{'below' if setting.below_high else 'at most'} {number_words(high)}{unit}" if high is not None else ""


def _span_words(low: float, high: float) -> str:
    return f"{number_words(low)} to {number_words(high)}"
