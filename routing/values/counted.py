"""Numbers with their nouns, in singular and plural."""

from __future__ import annotations


def count(number: int, singular: str, plural: str = "") -> str:
    """Return a number with its noun in the right form: 1 engine, 1,204 engines."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"
