"""The result of one check."""

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
    """One sentence about the state and, unless OK, one about the fix. Neither contains secrets."""

    state: State
    says: str
    do: str = ""


def ok(says: str) -> Finding:
    """Return a finding without a problem."""
    return Finding(State.OK, says)


def warning(says: str, do: str) -> Finding:
    """Return a finding about something that works with limitations."""
    return Finding(State.WARNING, says, do)


def problem(says: str, do: str) -> Finding:
    """Return a finding about something that prevents the program from serving."""
    return Finding(State.PROBLEM, says, do)
