"""Finds every problem of a policy document."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from typing_extensions import override

from controlplane.platform.field_problems import FieldProblem, InvalidInputError
from controlplane.policies.document.numbers import number_words
from controlplane.policies.document.schema import (
    ABSENT,
    SWITCH,
    TEXT,
    WHOLE,
    MapSchema,
    Node,
    ObjectSchema,
    Path,
    SettingSchema,
    StageSchema,
    path_text,
    policy_schema,
)
from controlplane.policies.document.whole_policy import WholePolicy
from planning.documents import automation_document
from planning.documents.automation_document import AutomationPolicy, contradictions
from planning.documents.policy_with_automation import AUTOMATION, routing_half, upgraded
from routing.live_policy import live_document, without_fixed
from routing.policy import policy_document
from routing.policy.schema_versions import FIELD, SchemaError
from routing.registry import BASELINES, STAGES, baseline_problem, pair_problem, stage_problems
from routing.values.counted import count
from routing.values.prepared_struct import prepared

_LONGEST_SHOWN = 60
"""Maximum number of characters of an invalid value or name that an error quotes."""

_LONGEST_NAME = 64
"""Maximum length of a rule's name, in characters."""


class InvalidPolicyError(InvalidInputError):
    """The document is not a valid policy. `problems` are sentences that start with the path of their field."""

    summary = "The document is not a valid policy."

    def __init__(self, problems: Iterable[FieldProblem]) -> None:
        self._field_problems = tuple(problems)
        self.problems = tuple(f"{_rooted(one.path)}: {one.message}" for one in self._field_problems)
        super().__init__("; ".join(self.problems))

    @property
    @override
    def field_problems(self) -> tuple[FieldProblem, ...]:
        """Return the problems as pairs of path (empty: the whole document) and message."""
        return self._field_problems


def validated(document: object) -> WholePolicy:
    """Parse and validate the document, and add the omitted parameters of its rules.

    A document of the previous schema is upgraded first: removed settings are dropped, and retired rules are replaced.
    Raises InvalidPolicyError with all problems of fields and rules.
    """
    # First: in a document of another schema, nearly every field would be a problem.
    if problems := list(_schema_problems(document)):
        raise InvalidPolicyError(problems)
    document = live_document(document, upgraded(document))
    if problems := list(_node_problems(document, policy_schema(), ())):
        raise InvalidPolicyError(problems)
    try:
        policy = msgspec.convert(document, prepared(WholePolicy))
    except msgspec.ValidationError as error:
        sentence, _, where = str(error).partition(" - at `")
        raise InvalidPolicyError([FieldProblem(where.rstrip("`").removeprefix("$."), sentence.lower())]) from error
    together = [FieldProblem(*text.split(": ", 1)) for text in stage_problems(policy)]
    if together := [*together, *_contradictions(policy.automation), *_slice_problems(policy)]:
        raise InvalidPolicyError(together)
    return _with_parameters(policy)


def problems_of(document: object) -> tuple[FieldProblem, ...]:
    """Return all problems of the document; empty if it is valid."""
    try:
        validated(document)
    except InvalidPolicyError as error:
        return error.field_problems
    return ()


def _contradictions(automation: AutomationPolicy) -> Iterator[FieldProblem]:
    for text in contradictions(automation):
        sentence, _, where = text.partition(" - at `")
        yield FieldProblem(f"{AUTOMATION}.{where.rstrip('`').removeprefix('$.')}", sentence)


def _slice_problems(policy: WholePolicy) -> Iterator[FieldProblem]:
    """Yield a problem if the holdback's rule is incompatible with the shared queue order."""
    control = policy.automation.holdback
    if control.share and pair_problem(control.placement, policy.order.name):
        message = f"queue order {policy.order.name!r} lets engines pull unbound requests, so no rule places them"
        yield FieldProblem(f"{AUTOMATION}.holdback.share", message)


def _with_parameters(policy: WholePolicy) -> WholePolicy:
    """Add the omitted parameters of a rule, because defaults may change in a later version of the program."""
    stages = {}
    for name, table in STAGES.items():
        stage = getattr(policy, name)
        rule = msgspec.convert(stage.params, prepared(table[stage.name]))
        stages[name] = msgspec.structs.replace(stage, params=msgspec.to_builtins(rule))
    return without_fixed(msgspec.structs.replace(policy, **stages))


def _node_problems(value: object, schema: Node, path: Path) -> Iterator[FieldProblem]:
    if isinstance(schema, SettingSchema):
        if message := _setting_problem(value, schema):
            yield FieldProblem(path_text(path), message)
    elif not isinstance(value, dict):
        yield FieldProblem(path_text(path), f"expected an object, got {_kind_name(value)}")
    elif isinstance(schema, StageSchema):
        yield from _stage_problems(value, schema)
    elif isinstance(schema, MapSchema):
        yield from _map_problems(value, schema)
    else:
        yield from _object_problems(value, schema, path)


def _object_problems(value: dict[str, Any], schema: ObjectSchema, path: Path) -> Iterator[FieldProblem]:
    yield from _unknown_names(value, schema.members, path, schema.constants)
    for name, member in schema.members.items():
        if name in value:
            yield from _node_problems(value[name], member, (*path, name))
        elif not isinstance(member, ObjectSchema) and member.default is ABSENT:
            yield FieldProblem(path_text((*path, name)), "is missing")


def _map_problems(value: dict[str, Any], schema: MapSchema) -> Iterator[FieldProblem]:
    if schema.most is not None and len(value) > schema.most:
        yield FieldProblem(path_text(schema.path), f"has {count(len(value), 'name')}; {schema.most} are allowed")
    for name, item in list(value.items())[: schema.most]:
        path = (*schema.path, name[:_LONGEST_SHOWN])
        if schema.name_pattern and not re.fullmatch(schema.name_pattern, name):
            yield FieldProblem(path_text(path), f"does not match {schema.name_pattern}")
        yield from _node_problems(item, schema.entry, path)


def _stage_problems(value: dict[str, Any], schema: StageSchema) -> Iterator[FieldProblem]:
    yield from _unknown_names(value, ("name", "params"), schema.path)
    rule = None
    if message := _rule_name_problem(value.get("name", ABSENT), schema):
        yield FieldProblem(path_text(schema.name_path), message)
    else:
        rule = schema.rules[value["name"]]
    params = value.get("params", {})
    if not isinstance(params, dict):
        yield FieldProblem(path_text(schema.params_path), f"expected an object, got {_kind_name(params)}")
    elif rule is not None:
        yield from _object_problems(params, rule, schema.params_path)


def _rule_name_problem(name: object, schema: StageSchema) -> str:
    if name is ABSENT:
        return f"is missing; known are {', '.join(sorted(schema.rules))}"
    if not isinstance(name, str):
        return f"expected text, got {_kind_name(name)}"
    if name in schema.rules:
        return ""
    if not name:
        return f"is empty; known are {', '.join(sorted(schema.rules))}"
    return _stranger_problem(name, schema)


def _stranger_problem(name: str, schema: StageSchema) -> str:
    if name in BASELINES and schema.path == ("placement",):
        return baseline_problem(name)
    if len(name) > _LONGEST_NAME:
        return f"is longer than {_LONGEST_NAME} characters"
    return f"{_shown(name)} is unknown; {_suggestion(name, schema.rules)}"


def _unknown_names(
    value: dict[str, Any], known: Collection[str], path: Path, constants: Mapping[str, Any] = MappingProxyType({})
) -> Iterator[FieldProblem]:
    for name in value:
        if name in constants:
            applies = json.dumps(constants[name])
            yield FieldProblem(path_text((*path, name)), f"is not a setting; {applies} always applies. Remove it")
        elif name not in known:
            where = path_text((*path, str(name)[:_LONGEST_SHOWN]))
            yield FieldProblem(where, f"is unknown; {_suggestion(str(name), known)}")


def _suggestion(wrong: str, known: Collection[str]) -> str:
    """Return the most similar known name or, without one, all known names."""
    if close := difflib.get_close_matches(wrong[:_LONGEST_NAME], list(known), n=1):
        return f"did you mean {close[0]}?"
    return f"known are {', '.join(known)}" if known else "it has no settings"


def _setting_problem(value: object, schema: SettingSchema) -> str:
    if schema.kind == SWITCH:
        return "" if isinstance(value, bool) else f"expected true or false, got {_kind_name(value)}"
    if schema.kind == TEXT:
        return _text_problem(value, schema)
    if isinstance(value, str):
        return f"{_shown(value)} is not a number"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"expected a number, got {_kind_name(value)}"
    if isinstance(value, float) and not math.isfinite(value):
        return "is not a finite number"
    return _number_problem(value, schema)


def _text_problem(value: object, schema: SettingSchema) -> str:
    if not isinstance(value, str):
        return f"expected text, got {_kind_name(value)}"
    if schema.choices and value not in schema.choices:
        return f"{_shown(value)} is unknown; {_suggestion(value, schema.choices)}"
    return ""


def _number_problem(value: float, schema: SettingSchema) -> str:
    unit = f" {schema.unit}" if schema.unit else ""
    low, high = schema.low, schema.high
    if low is not None and (value < low or (schema.above_low and value == low)):
        side = "not above" if schema.above_low else "below"
        return f"{number_words(value)} is {side} {number_words(low)}{unit}"
    if high is not None and (value > high or (schema.below_high and value == high)):
        side = "not below" if schema.below_high else "above"
        return f"{number_words(value)} is {side} {number_words(high)}{unit}"
    if schema.kind == WHOLE and not isinstance(value, int):
        remedy = f"; write {number_words(round(value))}" if value.is_integer() else ""
        return f"{value!r} is not a whole number{remedy}"
    return ""


def _rooted(path: str) -> str:
    return f"$.{path}" if path else "$"


def _shown(value: str) -> str:
    shortened = value if len(value) <= _LONGEST_SHOWN else value[: _LONGEST_SHOWN - 1] + "…"
    return json.dumps(shortened, ensure_ascii=False)


def _kind_name(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return "nothing" if value is None else names.get(type(value), type(value).__name__)


def _schema_problems(document: Any) -> Iterator[FieldProblem]:
    """Yield a problem for each half of the document whose schema this program does not support.

    planning.documents.policy_with_automation.upgraded raises SchemaError for the same problems.
    """
    if not isinstance(document, dict):
        return
    for line, half, path in (
        (policy_document.ROUTING_SCHEMA, routing_half(document), FIELD),
        (automation_document.AUTOMATION_SCHEMA, document.get(AUTOMATION), f"{AUTOMATION}.{FIELD}"),
    ):
        try:
            line.upgraded(half if isinstance(half, dict) else {})
        except SchemaError as error:
            yield FieldProblem(path, str(error))
