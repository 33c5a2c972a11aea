"""Compares two policy documents line by line, in the form's order: removed, added, and unchanged lines.

Pure: documents in, lines out. Numbers are compared by value, regardless of notation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from controlplane.policies.document.paths import same_value
from controlplane.policies.document.schema import ABSENT, Absent, Path, path_text
from controlplane.policies.document.text import ordered, value_text

EQUAL, REMOVED, ADDED = "equal", "removed", "added"

_CONTEXT = 3
"""Number of unchanged lines shown before and after a change."""

_SHORTEST_FOLD = 4
"""Minimum number of unchanged lines to fold. Folding fewer saves no space."""


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line of the document. `old` and `new` are its line numbers on both sides; None: not on that side."""

    kind: str
    path: str
    depth: int
    name: str
    """The JSON name as written; empty for closing brackets and the outermost object."""
    text: str
    """The value, or a bracket."""
    tail: str
    """A comma if another line follows."""
    old: int | None
    new: int | None
    marked: bool
    """Whether only the value changed, rather than the whole line."""

    @property
    def indent(self) -> str:
        """Return the indentation of the line."""
        return "  " * self.depth

    @property
    def sign(self) -> str:
        """Return the sign that distinguishes added from removed lines without color."""
        return {ADDED: "+", REMOVED: "−"}.get(self.kind, " ")

    @property
    def quote(self) -> str:
        """Return the quotation mark around the value, which is not highlighted."""
        return '"' if self.marked and len(self.text) >= 2 and self.text[0] == self.text[-1] == '"' else ""

    @property
    def bare(self) -> str:
        """Return the value without quotation marks."""
        return self.text[1:-1] if self.quote else self.text


@dataclass(frozen=True, slots=True)
class DiffRun:
    """Adjacent lines. A folded run consists of unchanged lines far from any change."""

    folded: bool
    lines: tuple[DiffLine, ...]


@dataclass(slots=True)
class _Writer:
    """Numbers lines as they are written. Mutable state: both counters."""

    old: int = 0
    new: int = 0
    lines: list[DiffLine] = field(default_factory=list)

    def write(self, kind: str, path: Path, name: str, text: str, *, more: bool, marked: bool = False) -> None:
        self.old += kind != ADDED
        self.new += kind != REMOVED
        depth = len(path)
        self.lines.append(
            DiffLine(
                kind,
                path_text(path),
                depth,
                name,
                text,
                "," if more else "",
                None if kind == ADDED else self.old,
                None if kind == REMOVED else self.new,
                marked,
            )
        )


def diff_lines(before: Any, after: Any) -> tuple[DiffLine, ...]:
    """Return the lines of both documents, aligned by path."""
    writer = _Writer()
    _compare(writer, (), "", ordered(before), ordered(after), more=False)
    return tuple(writer.lines)


def diff_runs(before: Any, after: Any) -> tuple[DiffRun, ...]:
    """Return the lines of both documents in runs, with lines far from any change folded."""
    lines = diff_lines(before, after)
    near = _near_a_change([line.kind != EQUAL for line in lines])
    return tuple(_runs(lines, near))


def _compare(writer: _Writer, path: Path, name: str, before: Any, after: Any, *, more: bool) -> None:
    if same_value(before, after) and not isinstance(after, dict):
        writer.write(EQUAL, path, name, value_text(after), more=more)
    elif isinstance(before, dict) and isinstance(after, dict) and before and after:
        writer.write(EQUAL, path, name, "{", more=False)
        names = [*after, *(item for item in before if item not in after)]
        names = list(ordered(dict.fromkeys(names))) if not path else _woven(list(before), list(after))
        for number, member in enumerate(names, start=1):
            inner = before.get(member, ABSENT), after.get(member, ABSENT)
            _compare(writer, (*path, member), member, *inner, more=number < len(names))
        writer.write(EQUAL, path, "", "}", more=more)
    elif same_value(before, after):
        writer.write(EQUAL, path, name, "{}", more=more)
    else:
        both = not isinstance(before, Absent) and not isinstance(after, Absent)
        for kind, value in ((REMOVED, before), (ADDED, after)):
            if not isinstance(value, Absent):
                _write_whole(writer, kind, path, name, value, more=more, marked=both)


def _write_whole(
    writer: _Writer, kind: str, path: Path, name: str, value: Any, *, more: bool, marked: bool = False
) -> None:
    if not isinstance(value, dict) or not value:
        writer.write(kind, path, name, value_text(value), more=more, marked=marked)
        return
    writer.write(kind, path, name, "{", more=False)
    for number, (member, item) in enumerate(value.items(), start=1):
        _write_whole(writer, kind, (*path, member), member, item, more=number < len(value))
    writer.write(kind, path, "", "}", more=more)


def _woven(before: list[str], after: list[str]) -> list[str]:
    """Return the names of both sides, preserving each side's order where possible."""
    names = list(after)
    for index, name in enumerate(before):
        if name not in names:
            left = next((names.index(item) for item in reversed(before[:index]) if item in names), -1)
            names.insert(left + 1, name)
    return names


def _near_a_change(changed: list[bool]) -> list[bool]:
    near = [False] * len(changed)
    for index, is_changed in enumerate(changed):
        if is_changed:
            first, last = max(0, index - _CONTEXT), min(len(changed), index + _CONTEXT + 1)
            near[first:last] = [True] * (last - first)
    return near


def _runs(lines: tuple[DiffLine, ...], near: list[bool]) -> Iterator[DiffRun]:
    start = 0
    for index in range(1, len(lines) + 1):
        if index == len(lines) or near[index] != near[start]:
            run = lines[start:index]
            yield DiffRun(not near[start] and len(run) >= _SHORTEST_FOLD, run)
            start = index
