"""A request's path from the region of first contact to the region that serves it."""

from __future__ import annotations

import msgspec


class Hop(msgspec.Struct, frozen=True, gc=False):
    """One hop, as recorded on both sides."""

    origin: str
    destination: str
    """Region of the engines."""
    reason: str
    """Why the region rule chose it, as a code of routing.values.reasons."""
    rule: str
    """The sovereignty rule that allowed it, `default`, or empty if there are no rules."""
