"""One row of a report for a plan of an automation."""

from __future__ import annotations

import msgspec


class PlanRow(msgspec.Struct, frozen=True):
    """One plan that had an effect, or would have had one if it were not only advised."""

    at_s: float
    automation: str
    what: str
    why: str
