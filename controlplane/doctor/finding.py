"""Result of one check."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """Severity. Only a problem makes the command fail."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence about the state and, unless OK, one about the fix. Neither contains a secret."""

    state: State
    says: str
    do: str = ""


def ok(says: str) -> Finding:
    """Return a finding that all is well."""
    return Finding(State.OK, says)


def warning(says: str, do: str) -> Finding:
    """Return a finding about something that works, but not as well or as long as it should."""
    return Finding(State.WARNING, says, do)


def problem(says: str, do: str) -> Finding:
    """Return a finding about something that keeps the program from serving."""
    return Finding(State.PROBLEM, says, do)
