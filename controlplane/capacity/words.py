"""Wording shared by the command and the page."""

from __future__ import annotations

from planning.capacity.capacity_plan import SavingRange
from routing.values.counted import count


def range_words(found: SavingRange | None) -> str:
    """Return the range of the saving, and what it rests on."""
    if found is None:
        return "no range: the log has fewer than two windows of two hours"
    pieces = count(
        found.pieces, "day" if found.of_days else "window of two hours", "" if found.of_days else "windows of two hours"
    )
    return f"{found.low:.1%} to {found.high:.1%} in nine of ten draws of {pieces}"
