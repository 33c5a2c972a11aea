"""Reason of a plan: a code to count by and a sentence for people."""

from __future__ import annotations

import msgspec


class Reason(msgspec.Struct, frozen=True, gc=False):
    """One reason of a plan, or of inaction."""

    code: str
    """Lower case with underscores; stable, so that plans can be counted and tested by it."""
    text: str
    """One sentence with the decisive figures."""
