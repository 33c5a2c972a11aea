"""Rows that are written once."""

from __future__ import annotations


class AppendOnlyError(RuntimeError):
    """The row is stored and can never be changed."""
