"""SkyWalker-CH: consistent hashing of the session at both layers, skipping targets without room (§3.2)."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from routing.regions.region_view import WAIT, RegionChoice, RegionView
from routing.rings.hash_ring import HashRing


class SkyWalkerCh(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Picks the next engine with room clockwise of the session's hash, else the next region."""

    lookahead: int = 1

    def choose(self, view: RegionView) -> RegionChoice:
        """Return the first target with room on the ring of engines, else on the ring of regions."""
        for at in ring_of(tuple([engine.engine_id for engine in view.engines])).owners(view.session_key):
            if view.engines[at].has_room:
                return RegionChoice("ring", engine=at)
        for at in ring_of(tuple([peer.region for peer in view.peers])).owners(view.session_key):
            if view.peers[at].has_room:
                return RegionChoice("ring", peer=at)
        return WAIT


# A ring depends on its names alone, and costs 100 hashes for each of them.
@lru_cache(maxsize=64)
def ring_of(names: tuple[str, ...]) -> HashRing:
    """Return the ring of these engines or regions, with 100 virtual nodes per name."""
    return HashRing(names, virtual_nodes=100)
