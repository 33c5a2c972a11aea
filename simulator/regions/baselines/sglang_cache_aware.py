"""SGLang's router as SkyWalker's baseline (§5.1, §5.2, SGL): a tree per engine, ties to the first engine."""

from __future__ import annotations

import msgspec

from routing.regions.region_view import WAIT, RegionChoice, RegionEngineLoad, RegionView


class SglangCacheAwareRegions(msgspec.Struct, frozen=True):
    """Longest match above `cache_threshold`, else the smallest tree; the fewest requests if loads are far apart."""

    cache_threshold: float = 0.5
    balance_abs_threshold: int = 32
    balance_rel_threshold: float = 1.0001
    lookahead: int = 1

    def choose(self, view: RegionView) -> RegionChoice:
        """Return the engine with room that the published rule chooses."""
        free = [(at, engine) for at, engine in enumerate(view.engines) if engine.has_room]
        if not free:
            return WAIT
        if self._unbalanced([engine.in_flight for _, engine in free]):
            return RegionChoice("least_loaded", engine=min(free, key=lambda item: (item[1].in_flight, item[0]))[0])
        at, longest = max(free, key=lambda item: (item[1].matched_tokens, -item[0]))
        if longest.matched_tokens > self.cache_threshold * view.prompt_tokens:
            return RegionChoice("longest_match", engine=at)
        return RegionChoice("smallest_tree", engine=min(free, key=_tree_size)[0])

    def _unbalanced(self, loads: list[int]) -> bool:
        most, least = max(loads), min(loads)
        return most - least > self.balance_abs_threshold and most > self.balance_rel_threshold * least


def _tree_size(indexed: tuple[int, RegionEngineLoad]) -> tuple[int, int]:
    return indexed[1].indexed_tokens, indexed[0]
