"""Errors for changes that conflict with the current state."""

from __future__ import annotations


class ConflictError(RuntimeError):
    """The object's state does not allow the change; the message says why and what to do. The API answers 409."""
