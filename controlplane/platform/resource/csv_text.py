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
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(fields)
    for thing in things:
        lines.writerow(_safe(fields[name], cell) for name, cell in texts_of(thing, fields).items())
    return text.getvalue()


def cell_text(cell: str) -> str:
    """Return the text of a cell that `csv_of` wrote."""
    return cell[1:] if cell.startswith(QUOTE) and cell[1:].startswith(_FORMULA) else cell


def _safe(field: ModelField, cell: str) -> str:
    is_text = isinstance(field, models.CharField | models.JSONField)
    return f"{QUOTE}{cell}" if is_text and cell.startswith(_FORMULA) else cell
