"""Errors for changes that conflict with the current state."""

from __future__ import annotations


class ConflictError(RuntimeError):
    """The state of the object does not allow it; the message says why and what to do. The API answers 409."""
