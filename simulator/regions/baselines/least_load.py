"""Least load: the engine with the fewest requests in flight, the first on a tie (SkyWalker §5.1, LL)."""

from __future__ import annotations

import msgspec

from routing.regions.region_view import WAIT, RegionChoice, RegionView


class LeastLoad(msgspec.Struct, frozen=True):
    """Ignores prefixes and other regions."""

    lookahead: int = 1

    def choose(self, view: RegionView) -> RegionChoice:
        """Return the engine with the fewest requests in flight."""
        free = [(engine.in_flight, at) for at, engine in enumerate(view.engines) if engine.has_room]
        return RegionChoice("least_loaded", engine=min(free)[1]) if free else WAIT
