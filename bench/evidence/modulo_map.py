"""DualMap with key modulo number of engines instead of hash rings, for comparison with consistent hashing."""

from __future__ import annotations

from typing import cast

import msgspec
from typing_extensions import override
from xxhash import xxh3_64_intdigest

from routing.ledger.fleet_view import FleetView
from routing.placements.dual_map import DualMap
from routing.registry import Table
from routing.rings.hash_ring import CandidateRings, CandidateTargets
from simulator.baselines.registry import PLACEMENTS

NAME = "dual_map_modulo"


class ModuloCandidates:
    """Candidates by independent hashes modulo the number of engines. A duplicate is replaced by the next engine."""

    def __init__(self, engines: int, candidates: int) -> None:
        self._engines = engines
        self._candidates = min(candidates, engines)

    def candidates(self, key: int) -> list[int]:
        """Return the positions of the key's candidates."""
        chosen: list[int] = []
        for seed in range(1, self._candidates + 1):
            at = xxh3_64_intdigest(key.to_bytes(8, "little"), seed) % self._engines
            while at in chosen:
                at = (at + 1) % self._engines
            chosen.append(at)
        return chosen


class ModuloMap(DualMap):
    """DualMap, except that a change of the fleet remaps nearly all prefixes."""

    @override
    def _build(self, view: FleetView) -> CandidateTargets:
        super()._build(view)
        candidates = ModuloCandidates(len(view.roster.accepting), self.d)
        return CandidateTargets(cast("CandidateRings", candidates), view.roster.accepting)


WITH_MODULO: Table = {**PLACEMENTS, NAME: cast("type[msgspec.Struct]", ModuloMap)}
"""All placements that can be simulated, including this rule."""
