"""The highest urgency that a caller may give to its requests."""

from __future__ import annotations

from gateway.contracts.snapshot import ApiKeyEntry


def allowed_priority(caller: ApiKeyEntry, asked: int) -> int:
    """Return the priority that a request gets: the requested one, or its key's ceiling (lower is more urgent)."""
    ceiling = caller.priority_ceiling
    return asked if ceiling is None else max(asked, ceiling)
