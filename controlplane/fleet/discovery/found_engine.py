"""One engine as reported by a discovery source."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Presence(StrEnum):
    """Readiness of a listed engine."""

    READY = "ready"
    WAITING = "waiting"
    """The engine is listed but not ready. A known engine gets no new work; a new one is not registered yet."""
    LEAVING = "leaving"
    """The engine is about to end and is drained immediately."""


@dataclass(frozen=True, slots=True)
class FoundEngine:
    """One discovered engine. `fields` are further fields of the engine, which apply when it is registered."""

    name: str
    url: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    presence: Presence = Presence.READY


class DiscoveryOutageError(Exception):
    """The source cannot be read or trusted now, so no engine is removed. The message explains why."""


_LONGEST_NAME, _DIGITS = 64, 8


def plain_name(name: str) -> str:
    """Return the name reduced to the characters allowed in engine names. Long names end with a digest.

    Names of pods may be longer, and differ only at their end.
    """
    plain = re.sub(r"[^A-Za-z0-9_]+", "-", name).strip("-")
    if len(plain) <= _LONGEST_NAME:
        return plain
    digest = hashlib.sha256(plain.encode()).hexdigest()[:_DIGITS]
    return f"{plain[: _LONGEST_NAME - _DIGITS - 1]}-{digest}"
