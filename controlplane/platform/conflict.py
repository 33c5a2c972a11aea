"""Errors for changes that conflict with the current state."""

from __future__ import annotations


class ConflictError(RuntimeError):
    """The object's state does not allow the change.

    The message explains the reason and the fix. The API responds with 409.
    """
