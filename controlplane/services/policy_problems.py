"""Finds everything that is wrong with a policy document, not just the first thing."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from routing.policy_document import RoutingPolicy
from routing.registry import stage_problems


class InvalidPolicyError(ValueError):
    """The document is no policy; `problems` are sentences that start with the path of their field."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


def validated(document: object) -> RoutingPolicy:
    """Return the policy that the document describes; raises InvalidPolicyError with all problems."""
    problems = _struct_problems(document, RoutingPolicy, "$")
    if problems:
        raise InvalidPolicyError(tuple(problems))
    policy = msgspec.convert(document, RoutingPolicy)
    if stages := stage_problems(policy):
        raise InvalidPolicyError(tuple(f"$.{problem}" for problem in stages))
    return policy


def _struct_problems(value: object, kind: type[msgspec.Struct], path: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{path}: expected an object, got {_kind_name(value)}"]
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    problems = [f"{path}.{name}: is unknown; known are {', '.join(fields)}" for name in value if name not in fields]
    problems += [f"{path}.{name}: is missing" for name, field in fields.items() if field.required and name not in value]
    for name, field in fields.items():
        if name in value:
            problems += _field_problems(value[name], field.type, f"{path}.{name}")
    return problems


def _field_problems(value: object, kind: Any, path: str) -> list[str]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _struct_problems(value, kind, path)
    if bad := _number_problems(value, path):
        return bad
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        sentence, _, where = str(error).partition(" - at `")
        return [f"{path}{where.rstrip('`').removeprefix('$')}: {sentence[:1].lower()}{sentence[1:]}"]
    return []


def _number_problems(value: object, path: str) -> list[str]:
    """NaN passes every comparison with a bound, and Python's JSON reader accepts it."""
    if isinstance(value, float) and not math.isfinite(value):
        return [f"{path}: is not a finite number"]
    if isinstance(value, dict):
        return [problem for name, item in value.items() for problem in _number_problems(item, f"{path}.{name}")]
    return []


def _kind_name(value: object) -> str:
    return "null" if value is None else type(value).__name__
