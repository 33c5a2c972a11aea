"""Texts with highlighted figures, which are split into pieces for display."""

from __future__ import annotations

_MARK = "\0"

Words = tuple[tuple[str, bool], ...]
"""Pieces of text; True: highlighted."""


def strong(text: str) -> str:
    """Return the text marked for highlighting."""
    return f"{_MARK}{text}{_MARK}"


def pieces(text: str) -> Words:
    """Split a text with marked parts into pieces."""
    return tuple((piece, index % 2 == 1) for index, piece in enumerate(text.split(_MARK)) if piece)


def text_of(words: Words) -> str:
    """Return the text without marks."""
    return "".join(text for text, _ in words)
