"""Settings of earlier schemas that are constants: they are taken out of a document, and a note says what applies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Removed = Mapping[str, Any]
"""Dotted path in a document → the value that applies instead."""


def without_removed(document: dict[str, Any], removed: Removed) -> dict[str, Any]:
    """Take the removed settings out of the document, in place, and return it."""
    for path in removed:
        holder, name = _holder(document, path)
        holder.pop(name, None)
    return document


def removed_notes(document: Mapping[str, Any], removed: Removed, above: str = "") -> Iterator[str]:
    """Yield a sentence for each removed setting whose value in the document differs from the one that applies."""
    for path, applies in removed.items():
        holder, name = _holder(document, path)
        if name in holder and holder[name] != applies:
            yield f"{above}{path} {holder[name]} is no longer a setting; {applies} applies."


def _holder(document: Mapping[str, Any], path: str) -> tuple[Any, str]:
    """Return the object that holds the path's last name; an empty one if the document has none."""
    *above, name = path.split(".")
    holder: Any = document
    for part in above:
        holder = holder.get(part, {})
    return holder, name
