"""The protocol for region rules, which choose a local engine or another region for one request."""

from __future__ import annotations

from typing import Protocol

from routing.regions.region_view import RegionChoice, RegionView


class RegionRule(Protocol):
    """Chooses the destination of one queued request. Keeps no copy of the fleet and reads no clock."""

    @property
    def lookahead(self) -> int:
        """Number of waiting requests considered. 1 means first come, first served, with a blocking head."""

    def choose(self, view: RegionView) -> RegionChoice:
        """Return an engine with room, a peer with room, or a wait."""
