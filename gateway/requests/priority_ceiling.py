"""How urgent a caller may call its requests."""

from __future__ import annotations

from gateway.contracts.snapshot import ApiKeyEntry


def allowed_priority(caller: ApiKeyEntry, asked: int) -> int:
    """Return the priority that a request gets: the one asked for, or its key's ceiling (lower goes first)."""
    ceiling = caller.priority_ceiling
    return asked if ceiling is None else max(asked, ceiling)
