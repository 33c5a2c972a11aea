"""One line of a report on a plan of an automation."""

from __future__ import annotations

import msgspec


class PlanRow(msgspec.Struct, frozen=True):
    """One plan with an effect, or with one that was only advised."""

    at_s: float
    automation: str
    what: str
    why: str
