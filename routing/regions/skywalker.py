"""SkyWalker's two-layer routing by prefix match (§3.1–3.3, Algorithm 1)."""

from __future__ import annotations

import msgspec

from routing.regions.region_view import WAIT, RegionChoice, RegionView


class SkyWalkerRegions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Picks any local engine with room before any other region, by longest match in both cases.

    A match below `least_match` of the prompt counts as none (§5.1): the engine with the fewest requests gets it. Ties
    go to the least loaded engine and the nearest region.
    """

    least_match: float = 0.5
    lookahead: int = 1

    def choose(self, view: RegionView) -> RegionChoice:
        """Return the engine or region with the longest match among those with room."""
        free = [at for at, engine in enumerate(view.engines) if engine.has_room]
        if free:
            return self._local(view, free)
        peers = [at for at, peer in enumerate(view.peers) if peer.has_room]
        if not peers:
            return WAIT
        at = min(peers, key=lambda at: (-view.peers[at].matched_tokens, view.peers[at].one_way_s, at))
        return RegionChoice("remote_match", peer=at)

    def _local(self, view: RegionView, free: list[int]) -> RegionChoice:
        longest = max(view.engines[at].matched_tokens for at in free)
        if longest < self.least_match * view.prompt_tokens:
            return RegionChoice("least_loaded", engine=_least(view, free))
        holders = [at for at in free if view.engines[at].matched_tokens == longest]
        return RegionChoice("longest_match", engine=_least(view, holders))


def _least(view: RegionView, among: list[int]) -> int:
    return min(among, key=lambda at: (view.engines[at].in_flight, at))
