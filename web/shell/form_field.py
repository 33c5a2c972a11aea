"""One field of a form: its rendering, the typed value and its problem."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from controlplane.platform.field_problems import FieldProblem

TEXT, NUMBER, SELECT, CHECKS, PASSWORD = "text", "number", "select", "checks", "password"


@dataclass(frozen=True, slots=True)
class FieldOption:
    """One choice of a select or a group of check boxes."""

    value: str
    label: str
    help: str = ""


@dataclass(frozen=True, slots=True)
class FormField:
    """One field. `chosen` are the typed or ticked values; most kinds have one."""

    name: str
    label: str
    kind: str = TEXT
    help: str = ""
    unit: str = ""
    options: tuple[FieldOption, ...] = ()
    chosen: tuple[str, ...] = ("",)
    required: bool = False
    limit: int = 200
    autocomplete: str = "off"
    error: str = ""

    @property
    def value(self) -> str:
        """The one value."""
        return self.chosen[0] if self.chosen else ""


def filled(
    fields: Iterable[FormField], typed: Mapping[str, Sequence[str]], problems: Iterable[FieldProblem] = ()
) -> list[FormField]:
    """Return the fields with the typed values (passwords excepted) and their problems."""
    wrong: dict[str, list[str]] = {}
    for problem in problems:
        wrong.setdefault(problem.path, []).append(problem.message)
    return [
        replace(
            field,
            chosen=field.chosen if field.kind == PASSWORD else tuple(typed.get(field.name, field.chosen)),
            error=" ".join(wrong.get(field.name, ())),
        )
        for field in fields
    ]


def general_problem(fields: Iterable[FormField], problems: Iterable[FieldProblem]) -> str:
    """Return in one line the problems that belong to no shown field."""
    shown = {field.name for field in fields}
    return " ".join(
        f"{problem.path}: {problem.message}" if problem.path else problem.message
        for problem in problems
        if problem.path not in shown
    )


def whole_number(name: str, text: str, problems: list[FieldProblem]) -> int | None:
    """Return the typed number, None if nothing was typed; adds to `problems` what is not a number."""
    text = text.strip()
    if not text:
        return None
    try:
        return int(text) if len(text) <= 12 else int("x")
    except ValueError:
        problems.append(FieldProblem(name, "Enter a whole number, or leave it empty for no limit."))
        return None
