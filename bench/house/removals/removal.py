"""Read the tables of removals, and apply one to a copy of the tree.

A removal is an exact edit: `old` occurs once in `file`, and `new` replaces it. There is one table per group of
requirements.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

import msgspec

TABLES = Path(__file__).parent / "tables"


class Edit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One replacement in one file."""

    file: str
    old: str
    new: str

    def applied(self, text: str) -> str:
        """Return the file's text with the replacement. Raises ValueError unless `old` occurs exactly once."""
        count = text.count(self.old)
        if count != 1:
            raise ValueError(f"{self.file}: the removed text occurs {count} times, not once: {self.old[:120]!r}")
        if self.old == self.new:
            raise ValueError(f"{self.file}: the edit changes nothing: {self.old[:120]!r}")
        return text.replace(self.old, self.new)


class Removal(Edit, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One part of a requirement's mechanism, and the edit that removes it."""

    part: str
    """The removed part, described in words."""
    tests: tuple[str, ...]
    """Function names of the row's tests, one of which must fail."""
    also: tuple[Edit, ...] = ()
    """Further edits in other layers with the same effect."""
    unproved: bool = False
    """Whether no named test fails. The row is then `partly`, and its last column says so."""

    @property
    def files(self) -> set[str]:
        """The edited files."""
        return {item.file for item in (self, *self.also)}

    def texts(self, tree: Path) -> dict[str, str]:
        """Return the edited files of a tree by name. Raises ValueError if an edit does not apply."""
        texts: dict[str, str] = {}
        for edit in (self, *self.also):
            before = texts.get(edit.file) or (tree / edit.file).read_text(encoding="utf-8")
            texts[edit.file] = edit.applied(before)
        return texts


def all_removals() -> dict[str, tuple[Removal, ...]]:
    """Return the removals of each row, R1 first."""
    rows: dict[str, tuple[Removal, ...]] = {}
    for path in TABLES.glob("*.toml"):
        table = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), dict[str, tuple[Removal, ...]])
        if twice := rows.keys() & table.keys():
            raise ValueError(f"{path.name}: {', '.join(sorted(twice))}: in another table too")
        rows |= table
    return dict(sorted(rows.items(), key=lambda row: int(row[0][1:])))


def chosen(rows: Mapping[str, tuple[Removal, ...]], only: list[str], word: str) -> list[tuple[str, Removal]]:
    """Return the removals of these rows (empty: of all) whose part contains the word."""
    if unknown := set(only) - rows.keys():
        raise ValueError(f"no removals of {', '.join(sorted(unknown))}; there are {', '.join(rows)}")
    return [(row, item) for row in only or rows for item in rows[row] if word in item.part]
