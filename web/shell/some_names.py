"""A list of names in a sentence."""

from __future__ import annotations

from collections.abc import Sequence


def some_names(names: Sequence[str], most: int) -> str:
    """Return the first names, and how many more there are: a, b, c and 4 more."""
    shown, rest = ", ".join(names[:most]), len(names) - most
    return f"{shown} and {rest} more" if rest > 0 else shown
