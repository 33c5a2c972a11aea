"""Limits the urgency that a caller can give to its requests."""

from __future__ import annotations

from gateway.contracts.snapshot import ApiKeyEntry


def allowed_priority(caller: ApiKeyEntry, asked: int) -> int:
    """Return a request's priority: the requested one, or its key's ceiling (lower is more urgent)."""
    ceiling = caller.priority_ceiling
    return asked if ceiling is None else max(asked, ceiling)
