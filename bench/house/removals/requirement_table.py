"""Read docs/reliability.md: the state of each requirement, and the tests that it names."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

PATH = Path(__file__).resolve().parents[3] / "docs" / "reliability.md"
_ROW = re.compile(r"^\| (R\d+) \| (\w+) \|(.*?)\| .+ \|$", re.MULTILINE)
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


class Requirement(msgspec.Struct, frozen=True):
    """One row of the table."""

    state: str
    named: str
    """The cell that names its tests."""
    tests: dict[str, str]
    """File by function name."""


def requirements(text: str) -> dict[str, Requirement]:
    """Return the rows of the table."""
    return {
        row: Requirement(state, named, {name: file for file, name in _TEST.findall(named)})
        for row, state, named in _ROW.findall(text)
    }
