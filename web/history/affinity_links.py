"""Addresses of one Affinity page in its other states."""

from __future__ import annotations

from urllib.parse import urlencode


class Links:
    """Each picture changes its own part of the query and keeps the rest."""

    def __init__(self, here: str, query: dict[str, str]) -> None:
        self._here = here
        self._query = query

    def to(self, **changes: str) -> str:
        """Return the address with these parts changed; an empty one is left out."""
        query = {name: value for name, value in sorted({**self._query, **changes}.items()) if value}
        return f"{self._here}?{urlencode(query)}" if query else self._here
