"""The way of a request from the region of its first contact to the one that serves it."""

from __future__ import annotations

import msgspec


class Hop(msgspec.Struct, frozen=True, gc=False):
    """One hop, as the records of both sides name it."""

    origin: str
    destination: str
    """Region of the engines."""
    reason: str
    """Why the region rule chose it, a code of routing.values.reasons."""
    rule: str
    """The sovereignty rule that allowed it, `default`, or empty where there are no rules."""
