"""Rows that are written once."""

from __future__ import annotations


class AppendOnlyError(RuntimeError):
    """The row is stored, so it is never changed."""
