"""Verbs of pages that may be rejected, and how the rejection is shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from controlplane.platform.field_problems import FieldProblem, InvalidFieldsError
from controlplane.platform.roles import NotAllowedError

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class FormRejection:
    """Why a verb did nothing, and with which status its page is shown again."""

    problems: tuple[FieldProblem, ...]
    status: int
    error: Exception

    @property
    def words(self) -> str:
        """All of it in one line."""
        return " ".join(problem.message for problem in self.problems)


def attempted(act: Callable[[], Made], *conflicts: type[Exception]) -> Made | FormRejection:
    """Return what `act` returns, or the rejection; `conflicts` are the errors that time or room may heal."""
    try:
        return act()
    except InvalidFieldsError as error:
        return FormRejection(tuple(error.problems), 422, error)
    except NotAllowedError as error:
        return FormRejection((FieldProblem("", str(error)),), 403, error)
    except conflicts as error:
        return FormRejection((FieldProblem("", str(error)),), 409, error)
