"""Round robin over the engines of one region, as a plain gateway behind a nearest-region address does."""

from __future__ import annotations

import msgspec

from routing.regions.region_view import WAIT, RegionChoice, RegionView


class RoundRobinRegions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Picks the engines in turn, skipping those without room. Never forwards."""

    lookahead: int = 1

    def choose(self, view: RegionView) -> RegionChoice:
        """Return the next engine in turn."""
        count = len(view.engines)
        for step in range(count):
            at = (view.turn + step) % count
            if view.engines[at].has_room:
                return RegionChoice("round_robin", engine=at)
        return WAIT
