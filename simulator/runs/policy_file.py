"""The policy documents that `simulate` reads from files: a routing policy, with or without its automations, as
published.

An unknown name in a file is an error; its message lists the known names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin

import msgspec

from planning.documents import policy_with_automation as whole_policy
from planning.documents.automation_document import AUTOMATION_SCHEMA, AutomationPolicy, contradictions
from planning.documents.policy_with_automation import AUTOMATION
from routing.policy.policy_document import RoutingPolicy
from routing.policy.schema_versions import FIELD, SchemaError
from routing.values.prepared_struct import prepared

MAX_DOCUMENT_BYTES = 1 << 20
Document = TypeVar("Document", bound=msgspec.Struct)
# msgspec names the unknown field and its path, but not the known ones.
_UNKNOWN = re.compile(r"unknown field `[^`]*`(?: - at `\$([^`]*)`)?")


class UnreadablePolicyError(ValueError):
    """The file does not contain such a document; the message states what is wrong and where."""


class PolicyFile(RoutingPolicy, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A policy version as exported by the API and console, or only its routing policy."""

    automation: AutomationPolicy | None = None
    """None if the file has no automations; then none run."""


class PolicyDocuments(msgspec.Struct, frozen=True, kw_only=True):
    """The routing policy and the automations of a policy file; automations are None if it has none."""

    routing: RoutingPolicy
    automation: AutomationPolicy | None = None
    notes: tuple[str, ...] = ()
    """How the file was read, as sentences."""


def read_policy(path: Path) -> PolicyDocuments:
    """Read a policy from JSON, including the previous schema, like the control plane; raise UnreadablePolicyError."""
    written = _decoded(path, "policy")
    current = _current(path, written, whole_policy.upgraded)
    policy = _converted(path, current, PolicyFile, "policy")
    if policy.automation is not None and (wrong := contradictions(policy.automation)):
        raise UnreadablePolicyError(f"{path}: automation: {'; '.join(wrong)}")
    routing = {name: getattr(policy, name) for name in RoutingPolicy.__struct_fields__}
    notes = [*_notes(f"{path}", written, current), *whole_policy.upgrade_notes(written)]
    if policy.automation is not None:
        notes += _notes(f"{path}: {AUTOMATION}", written[AUTOMATION], current[AUTOMATION])
    return PolicyDocuments(routing=RoutingPolicy(**routing), automation=policy.automation, notes=tuple(notes))


def read_automation(path: Path) -> tuple[AutomationPolicy, tuple[str, ...]]:
    """Read an automation document from JSON in the same way; return it with notes on how it was read."""
    written = _decoded(path, "automation document")
    current = _current(path, written, whole_policy.upgraded_automation)
    policy = _converted(path, current, AutomationPolicy, "automation document")
    if wrong := contradictions(policy):
        raise UnreadablePolicyError(f"{path}: {'; '.join(wrong)}")
    return policy, (*_notes(f"{path}", written, current), *AUTOMATION_SCHEMA.upgrade_notes(written))


def _decoded(path: Path, noun: str) -> Any:
    try:
        content = path.read_bytes()
        if len(content) > MAX_DOCUMENT_BYTES:
            raise UnreadablePolicyError(f"{path} is over {MAX_DOCUMENT_BYTES} bytes")
        return msgspec.json.decode(content)
    except OSError as error:
        raise UnreadablePolicyError(f"{path} cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadablePolicyError(f"{path} is no {noun}: {error}") from error


def _current(path: Path, document: Any, upgraded: Callable[[Any], Any]) -> Any:
    try:
        return upgraded(document)
    except SchemaError as error:
        raise UnreadablePolicyError(f"{path}: {FIELD} {error}") from error


def _converted(path: Path, document: Any, form: type[Document], noun: str) -> Document:
    try:
        return msgspec.convert(document, prepared(form))
    except msgspec.ValidationError as error:
        raise UnreadablePolicyError(f"{path} is no {noun}: {error}{_known(form, str(error))}") from error


def _notes(where: str, written: dict[str, Any], current: dict[str, Any]) -> Iterator[str]:
    """Yield a note if a document has an earlier schema."""
    before, now = written.get(FIELD), current.get(FIELD)
    if before is not None and before != now:
        yield f"{where} is of schema {before}; it was read as schema {now}, and the file left as it is"


def _known(form: Any, message: str) -> str:
    """Return the known names as the end of a message about an unknown name."""
    complaint = _UNKNOWN.search(message)
    if complaint is None:
        return ""
    for name in filter(None, (complaint[1] or "").split(".")):
        form = next((field.type for field in _fields(form) if field.encode_name == name), None)
    names = [field.encode_name for field in _fields(form)]
    return f"; known there are {', '.join(names)}" if names else ""


def _fields(form: Any) -> tuple[msgspec.structs.FieldInfo, ...]:
    # The type itself, or the struct in an optional or annotated one.
    for get_arg in (form, *get_args(form)):
        kind = get_args(get_arg)[0] if get_origin(get_arg) is Annotated else get_arg
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return msgspec.structs.fields(kind)
    return ()
