"""Page actions that can be rejected, and how a rejection is displayed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from controlplane.platform.field_problems import FieldProblem, InvalidFieldsError
from controlplane.platform.roles import NotAllowedError

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class FormRejection:
    """Why an action was rejected, and the HTTP status of the page that shows it."""

    problems: tuple[FieldProblem, ...]
    status: int
    error: Exception

    @property
    def words(self) -> str:
        """All problems in one line."""
        return " ".join(problem.message for problem in self.problems)


def attempted(act: Callable[[], Made], *conflicts: type[Exception]) -> Made | FormRejection:
    """Return the result of `act`, or the rejection. `conflicts` are errors that a later retry or freed capacity can
    resolve.
    """
    try:
        return act()
    except InvalidFieldsError as error:
        return FormRejection(tuple(error.problems), 422, error)
    except NotAllowedError as error:
        return FormRejection((FieldProblem("", str(error)),), 403, error)
    except conflicts as error:
        return FormRejection((FieldProblem("", str(error)),), 409, error)
