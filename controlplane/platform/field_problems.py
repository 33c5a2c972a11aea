"""Finds all problems with the fields of an object before it is stored."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.db import models
from typing_extensions import override


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One problem. `path` names the field; empty: the whole object."""

    path: str
    message: str


class InvalidInputError(ValueError):
    """The input cannot be stored. The API responds with 400, `summary`, and all `field_problems`."""

    summary = "Some values are invalid; see errors."

    @property
    def field_problems(self) -> tuple[FieldProblem, ...]:
        """Return all problems."""
        return (FieldProblem("", f"{self}."),)


class InvalidFieldsError(InvalidInputError):
    """The object cannot be stored. `problems` lists all reasons."""

    def __init__(self, problems: Iterable[FieldProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{problem.path}: {problem.message}" for problem in self.problems))

    @property
    @override
    def field_problems(self) -> tuple[FieldProblem, ...]:
        """Return all problems."""
        return self.problems


def problem(path: str, message: str) -> InvalidFieldsError:
    """Return an error with one problem."""
    return InvalidFieldsError([FieldProblem(path, message)])


def check_names(given: Iterable[str], changeable: Collection[str]) -> None:
    """Raise InvalidFieldsError unless all named fields may be changed."""
    unknown = [name for name in given if name not in changeable]
    if unknown:
        known = ", ".join(sorted(changeable))
        raise InvalidFieldsError(FieldProblem(name, f"Cannot be changed; known are {known}.") for name in unknown)


def check_fields(thing: models.Model) -> None:
    """Raise InvalidFieldsError with every problem of the object's fields and constraints."""
    problems = [FieldProblem(field.attname, text) for field in _fields(thing) if (text := _unusable(thing, field))]
    try:
        # The database evaluates constraints, and cannot take values such as NaN or a lone surrogate.
        thing.full_clean(exclude={field_problem.path for field_problem in problems}, validate_constraints=not problems)
    except ValidationError as error:
        problems += [
            FieldProblem(_path(name, item), text)
            for name, errors in error.error_dict.items()
            for item in errors
            for text in item.messages
        ]
    if problems:
        raise InvalidFieldsError(problems)


def _path(name: str, error: ValidationError) -> str:
    """Return the field of the error. For fields that must be unique together, return the last one."""
    if name != NON_FIELD_ERRORS:
        return name
    return str(((error.params or {}).get("unique_check") or ("",))[-1])


def _fields(thing: models.Model) -> list[models.Field]:
    return list(thing._meta.concrete_fields)


def _unusable(thing: models.Model, field: models.Field) -> str:
    """Return the problem of a value that Django accepts but the database or a log line cannot contain."""
    value = getattr(thing, field.attname)
    if isinstance(value, float) and not math.isfinite(value):
        return "Must be a finite number."
    if isinstance(value, str) and any(_breaks_lines(character) for character in value):
        return "Must be one line without control characters."
    return ""


def _breaks_lines(character: str) -> bool:
    # Surrogates (Cs) have no form in UTF-8, in which databases and logs are written.
    return unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")
