"""Candidates of each key as targets of one version of the fleet, cached for repeated keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from routing.rings.hash_ring import CandidateRings

MAX_KNOWN = 8192
"""Maximum cached keys. Prompts with a common start share its key, so most of the traffic needs few."""


class CandidateTargets(dict[int, tuple[tuple[int, ...], int]]):
    """Key → its targets, in the order of the rings, and their bitset.

    Entries are computed from rings and targets on demand. A cached entry costs no call. Keys in `wider` have the
    candidates of their own rings, which begin with the usual ones.
    """

    def __init__(
        self, rings: CandidateRings, targets: Sequence[int], wider: Mapping[int, CandidateRings] | None = None
    ) -> None:
        super().__init__()
        self._rings = rings
        self._targets = targets
        self._wider = wider or {}

    def __missing__(self, key: int) -> tuple[tuple[int, ...], int]:
        targets = tuple([self._targets[position] for position in self._wider.get(key, self._rings).candidates(key)])
        if len(self) >= MAX_KNOWN:
            self.clear()
        entry = self[key] = (targets, sum([1 << target for target in targets]))
        return entry
