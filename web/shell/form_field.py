"""One form field: its rendering, typed value, and problem."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from controlplane.platform.field_problems import FieldProblem

TEXT, NUMBER, SELECT, CHECKS, PASSWORD, END = "text", "number", "select", "checks", "password", "end"


@dataclass(frozen=True, slots=True)
class FieldOption:
    """One option of a select or a group of checkboxes."""

    value: str
    label: str
    help: str = ""
    group: str = ""
    """Heading of the option's group in a select; empty: none."""


@dataclass(frozen=True, slots=True)
class FormField:
    """One form field. `chosen` contains the typed or ticked values, in most kinds only one."""

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
    example: str = ""
    optional: bool = False
    """Whether the label says that the field may stay empty."""
    soon: str = ""
    """Of an end: the chosen one of `options`, in minutes from now; empty: the typed time."""
    managed: str = ""
    """The files that manage the field, in words; empty: none."""

    @property
    def value(self) -> str:
        """The only value of a single-value field."""
        return self.chosen[0] if self.chosen else ""


def filled(
    fields: Iterable[FormField], typed: Mapping[str, Sequence[str]], problems: Iterable[FieldProblem] = ()
) -> list[FormField]:
    """Return the fields with the typed values (except passwords) and their problems."""
    wrong: dict[str, list[str]] = {}
    for problem in problems:
        wrong.setdefault(problem.path, []).append(problem.message)
    return [
        replace(
            field,
            chosen=_chosen(field, typed),
            soon=next(iter(typed.get(f"{field.name}_in", ("" if field.name in typed else field.soon,))), ""),
            error=" ".join(wrong.get(field.name, ())),
        )
        for field in fields
    ]


def _chosen(field: FormField, typed: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    if field.kind == PASSWORD:
        return field.chosen
    # Browsers do not send boxes that are not ticked.
    return tuple(typed.get(field.name, () if typed and field.kind == CHECKS else field.chosen))


def general_problem(fields: Iterable[FormField], problems: Iterable[FieldProblem]) -> str:
    """Return, in one line, the problems that belong to no displayed field."""
    shown = {field.name for field in fields}
    return " ".join(
        f"{problem.path}: {problem.message}" if problem.path else problem.message
        for problem in problems
        if problem.path not in shown
    )


def whole_number(name: str, text: str, problems: list[FieldProblem]) -> int | None:
    """Return the typed number, None if the field is empty. Append a problem if it is not a number."""
    text = text.strip()
    if not text:
        return None
    try:
        return int(text) if len(text) <= 12 else int("x")
    except ValueError:
        problems.append(FieldProblem(name, "Enter a whole number, or leave it empty for no limit."))
        return None
