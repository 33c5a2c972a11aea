"""Formats rows as a text table."""

from __future__ import annotations

from collections.abc import Sequence


def text_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows as lines; the first column is left-aligned, the others right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    pairs = [zip(row, widths, strict=True) for row in rows]
    return ["  ".join([first.ljust(width), *(cell.rjust(at) for cell, at in rest)]) for (first, width), *rest in pairs]
