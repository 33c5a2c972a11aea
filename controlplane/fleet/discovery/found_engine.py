"""One engine as reported by a source."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum


class Presence(StrEnum):
    """Readiness of a listed engine."""

    READY = "ready"
    WAITING = "waiting"
    """It is listed and not ready: a known one gets no new work, a new one is not registered yet."""
    LEAVING = "leaving"
    """It is about to end: it is drained at once."""


@dataclass(frozen=True, slots=True)
class FoundEngine:
    """One engine; events, replay, speed and role apply when it is registered."""

    name: str
    url: str
    events: str = ""
    replay: str = ""
    speed: float = 1.0
    role: str = "mixed"
    presence: Presence = Presence.READY


class DiscoveryOutageError(Exception):
    """The source cannot be read or trusted now, so no engine is removed; the message says why."""


def plain_name(name: str) -> str:
    """Return the name with the characters that an engine's name may have."""
    return re.sub(r"[^A-Za-z0-9_]+", "-", name).strip("-")[:64]
