"""Shortens and cleans external texts for one line of a table or a log."""

from __future__ import annotations


def one_line(text: str) -> str:
    """Return the text without characters that break lines or tables."""
    return "".join(character if character.isprintable() else " " for character in text).strip()
