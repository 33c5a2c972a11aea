"""One line on a plan of an automation, as reports show it."""

from __future__ import annotations

import msgspec


class PlanRow(msgspec.Struct, frozen=True):
    """One plan that did something, or would have."""

    at_s: float
    automation: str
    what: str
    why: str
