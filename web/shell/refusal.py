"""Verbs of pages that may be refused, and how the refusal is shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from controlplane.platform.field_problems import FieldProblem, InvalidFieldsError
from controlplane.platform.roles import NotAllowedError

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a verb did nothing, and with which status its page is shown again."""

    problems: tuple[FieldProblem, ...]
    status: int
    error: Exception

    @property
    def words(self) -> str:
        """All of it in one line."""
        return " ".join(each.message for each in self.problems)


def attempted(act: Callable[[], Made], *conflicts: type[Exception]) -> Made | Refusal:
    """Return what `act` returns, or the refusal; `conflicts` are the errors that time or room may heal."""
    try:
        return act()
    except InvalidFieldsError as error:
        return Refusal(tuple(error.problems), 422, error)
    except NotAllowedError as error:
        return Refusal((FieldProblem("", str(error)),), 403, error)
    except conflicts as error:
        return Refusal((FieldProblem("", str(error)),), 409, error)
