"""How a placement builds its hash rings, for pages that show them or preview a change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

from routing.rings.hash_ring import CandidateRings, HashRing


class RingPlan(msgspec.Struct, frozen=True):
    """All inputs of a ring except the engine ids."""

    rings: int
    """Number of rings, which is also the number of candidates per key."""
    virtual_nodes: int
    """Points per engine on each ring."""
    independent: bool
    """Whether each ring of CandidateRings has a separate seed. False: there is one plain ring."""
    key_blocks: int = 1
    """Minimum number of leading blocks in a prompt's key."""
    adaptive: bool = False
    """Whether keys of hot prefixes are longer."""

    def over(self, engine_ids: Sequence[str]) -> tuple[HashRing, ...]:
        """Return the rings over these engines in this order, at most one per engine."""
        if not self.independent:
            return (HashRing(engine_ids, virtual_nodes=self.virtual_nodes),)
        return CandidateRings(engine_ids, rings=self.rings, virtual_nodes=self.virtual_nodes).rings


@runtime_checkable
class OnRings(Protocol):
    """A placement that selects a prompt's engines on hash rings, by a key of its first blocks."""

    def ring_plan(self) -> RingPlan:
        """Return the plan of its hash rings."""

    def key_length(self, keys: Sequence[int]) -> int:
        """Return how many blocks of a prompt its key currently contains, without changing state."""


def candidates_on(rings: Sequence[HashRing], key: int) -> list[int]:
    """Return the indices of the key's candidates on these rings, by CandidateRings' rule (DualMap eq. 5)."""
    positions: list[int] = []
    for ring in rings:
        owner = ring.owner(key)
        while owner in positions:
            owner = (owner + 1) % ring.size
        positions.append(owner)
    return positions
