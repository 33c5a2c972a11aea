"""Reason of a plan: a code for counting, and a sentence for operators."""

from __future__ import annotations

import msgspec


class Reason(msgspec.Struct, frozen=True, gc=False):
    """One reason for a plan or for inaction."""

    code: str
    """Lower case with underscores. Stable, so that plans can be counted and tested by it."""
    text: str
    """One sentence with the decisive figures."""
