"""A policy document as editable text: written in the form's order, read with the positions of errors."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec

from controlplane.platform.field_problems import FieldProblem
from controlplane.policies.document.numbers import json_number
from controlplane.policies.document.problems import InvalidPolicyError, validated
from controlplane.policies.document.schema import (
    MapSchema,
    Node,
    ObjectSchema,
    SettingSchema,
    StageSchema,
    policy_schema,
)

MAX_TEXT_BYTES = 64 * 1024
"""Maximum size of a text. A policy takes about one kilobyte."""

_INDENT = "  "


def read_document(text: str) -> Any:
    """Parse the text as JSON. Raises InvalidPolicyError with line and column."""
    data = text.encode(errors="surrogatepass")
    if not text.strip():
        raise _unreadable("is empty; write {} for the defaults")
    if len(data) > MAX_TEXT_BYTES:
        raise _unreadable(f"is longer than {MAX_TEXT_BYTES // 1024} KiB")
    try:
        document = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _unreadable(_reading_error(text, str(error))) from error
    except RecursionError as error:
        raise _unreadable("is nested too deeply") from error
    twice: list[str] = []
    # msgspec keeps the last of two equal names in silence.
    json.loads(text, object_pairs_hook=lambda pairs: _noting_repeats(pairs, twice))
    if twice:
        raise InvalidPolicyError(FieldProblem(name[:60], "appears twice; keep one") for name in twice)
    return document


def document_text(document: Any) -> str:
    """Return the document as indented JSON, with known names first, in the form's order."""
    return _written(ordered(document), "")


def ordered(value: Any, schema: Node | None = None) -> Any:
    """Return a copy with names in the form's order. Unknown names follow in their original order."""
    schema = policy_schema() if schema is None else schema
    if not isinstance(value, dict) or isinstance(schema, SettingSchema):
        return value
    members = members_of(schema, value)
    known = {name: ordered(value[name], member) for name, member in members.items() if name in value}
    return known | {name: item for name, item in value.items() if name not in known}


def members_of(schema: ObjectSchema | StageSchema | MapSchema, value: Any) -> dict[str, Any]:
    """Return the known members of an object. For rules and maps, they depend on the names in the value."""
    if isinstance(schema, MapSchema):
        return dict.fromkeys(sorted(value) if isinstance(value, dict) else (), schema.entry)
    if isinstance(schema, ObjectSchema):
        return schema.members
    name = value.get("name") if isinstance(value, dict) else None
    rule = schema.rules.get(name) if isinstance(name, str) else None
    title = SettingSchema(schema.name_path, "text", schema.title, schema.sentence)
    return {"name": title, "params": rule or ObjectSchema(schema.params_path, "", "", {})}


def completed(document: Any) -> Any:
    """Return the document with all defaults included, in the form's order; unchanged if it is not a policy."""
    try:
        return ordered(msgspec.to_builtins(validated(document)))
    except InvalidPolicyError:
        return ordered(document)


def value_text(value: Any) -> str:
    """Return one value as JSON, with whole numbers without a decimal point: 8, 0.00008, "late_last"."""
    if isinstance(value, float):
        return json_number(value)
    return json.dumps(value, ensure_ascii=False)


def _written(value: Any, indent: str) -> str:
    deeper = indent + _INDENT
    if isinstance(value, dict) and value:
        parts = [f"{deeper}{value_text(name)}: {_written(item, deeper)}" for name, item in value.items()]
        return _block("{", parts, "}", indent)
    if isinstance(value, list) and value:
        return _block("[", [deeper + _written(item, deeper) for item in value], "]", indent)
    return value_text(value)


def _block(opening: str, parts: Iterable[str], closing: str, indent: str) -> str:
    return opening + "\n" + ",\n".join(parts) + f"\n{indent}{closing}"


def _noting_repeats(pairs: list[tuple[str, Any]], twice: list[str]) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for name, value in pairs:
        if name in seen:
            twice.append(name)
        seen[name] = value
    return seen


def _reading_error(text: str, message: str) -> str:
    """Return the line, column, and reason of a JSON error."""
    reason = message.partition(" (byte ")[0].partition(" - at ")[0].removeprefix("JSON is malformed: ")
    if " (byte " not in message:
        ends = "truncated" in message
        return "ends too early; a bracket or quote is open" if ends else f"cannot be read: {reason.lower()}"
    position = int(message.rpartition("(byte ")[2].rstrip(")"))
    before = text.encode(errors="surrogatepass")[:position].decode(errors="replace")
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    return f"cannot be read at line {line}, column {column}: {reason}"


def _unreadable(message: str) -> InvalidPolicyError:
    return InvalidPolicyError([FieldProblem("", message)])
