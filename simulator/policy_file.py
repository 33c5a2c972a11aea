"""The policy documents that `simulate` reads from files: a routing policy, alone or with its automations, as published.

What a file says that nobody knows is an error, with the names that are known there.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin

import msgspec

from planning.automation_document import AutomationPolicy, contradictions
from routing.policy_document import RoutingPolicy

MAX_DOCUMENT_BYTES = 1 << 20
Document = TypeVar("Document", bound=msgspec.Struct)
_UNKNOWN = re.compile(r"unknown field `[^`]*`(?: - at `\$([^`]*)`)?")


class UnreadablePolicyError(ValueError):
    """The file holds no such document; the message says what is wrong and where."""


class PolicyFile(RoutingPolicy, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole policy version, as API and console give it out, or its routing half."""

    automation: AutomationPolicy | None = None
    """None: the file says nothing of automations, so none steers."""


def read_policy(path: Path) -> tuple[RoutingPolicy, AutomationPolicy | None]:
    """Read a JSON policy and return both halves; raises UnreadablePolicyError."""
    found = _read(path, PolicyFile, "policy")
    if found.automation is not None and (wrong := contradictions(found.automation)):
        raise UnreadablePolicyError(f"{path}: automation: {'; '.join(wrong)}")
    routing = {name: getattr(found, name) for name in RoutingPolicy.__struct_fields__}
    return RoutingPolicy(**routing), found.automation


def read_automation(path: Path) -> AutomationPolicy:
    """Read a JSON automation document; raises UnreadablePolicyError."""
    policy = _read(path, AutomationPolicy, "automation document")
    if wrong := contradictions(policy):
        raise UnreadablePolicyError(f"{path}: {'; '.join(wrong)}")
    return policy


def _read(path: Path, form: type[Document], noun: str) -> Document:
    try:
        content = path.read_bytes()
        if len(content) > MAX_DOCUMENT_BYTES:
            raise UnreadablePolicyError(f"{path} is over {MAX_DOCUMENT_BYTES} bytes")
        return msgspec.json.decode(content, type=form)
    except OSError as error:
        raise UnreadablePolicyError(f"{path} cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadablePolicyError(f"{path} is no {noun}: {error}{_known(form, str(error))}") from error


def _known(form: Any, message: str) -> str:
    """Return the names that are known where the message complains of an unknown one, as an end of its sentence."""
    complaint = _UNKNOWN.search(message)
    if complaint is None:
        return ""
    for name in filter(None, (complaint[1] or "").split(".")):
        form = next((each.type for each in _fields(form) if each.encode_name == name), None)
    names = [each.encode_name for each in _fields(form)]
    return f"; known there are {', '.join(names)}" if names else ""


def _fields(form: Any) -> tuple[msgspec.structs.FieldInfo, ...]:
    for each in (form, *get_args(form)):
        kind = get_args(each)[0] if get_origin(each) is Annotated else each
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return msgspec.structs.fields(kind)
    return ()
