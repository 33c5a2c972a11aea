"""Base class of rows that are written once."""

from __future__ import annotations


class AppendOnlyError(RuntimeError):
    """The row is stored and can no longer be changed."""
