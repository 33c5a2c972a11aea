"""The mean of reports that differ only in the seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def mean_of(reports: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the only report, or a report of means that contains all reports under `seeds`.

    A figure has no mean if it is None in any report.
    """
    if len(reports) == 1:
        return reports[0]
    mean: dict[str, Any] = {}
    for key, first in reports[0].items():
        values = [report.get(key) for report in reports]
        if isinstance(first, int | float) and all(isinstance(value, int | float) for value in values):
            total = sum(value for value in values if value is not None)
            # Equal figures stay as they are: whole numbers whole, others without rounding.
            mean[key] = first if all(value == first for value in values) else total / len(values)
        elif key != "detail":
            mean[key] = first if all(value == first for value in values) else None
    return {**mean, "seeds": list(reports)}
