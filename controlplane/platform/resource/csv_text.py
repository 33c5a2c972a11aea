"""Objects as CSV: one column for each field that people set, named as in the API. Bulk paste reads the same columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

from django.db import models

from controlplane.platform.resource.declared_field import Fields, ModelField
from controlplane.platform.resource.field_text import texts_of

_FORMULA = ("=", "+", "-", "@")
QUOTE = "'"
"""Precedes a text that a spreadsheet would evaluate as a formula."""


def csv_of(things: Iterable[models.Model], fields: Fields) -> str:
    """Return a header line and a line for each object."""
    return csv_table(
        fields, ([_cell(fields[name], text) for name, text in texts_of(thing, fields).items()] for thing in things)
    )


def csv_table(columns: Iterable[str], lines: Iterable[Iterable[object]]) -> str:
    """Return a header line and these lines. Use `safe_text` for texts that people have set."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(lines)
    return text.getvalue()


def safe_text(text: str) -> str:
    """Return the text, quoted if a spreadsheet would evaluate it as a formula."""
    return f"{QUOTE}{text}" if text.startswith(_FORMULA) else text


def cell_text(cell: str) -> str:
    """Return the text of a cell that `csv_of` wrote."""
    return cell[1:] if cell.startswith(QUOTE) and cell[1:].startswith(_FORMULA) else cell


def _cell(field: ModelField, text: str) -> str:
    return safe_text(text) if isinstance(field, models.CharField | models.JSONField) else text
