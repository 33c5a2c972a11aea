"""Consistent hash rings over engine ids (DualMap §3.4; Karger et al. 1997), with virtual nodes.

A ring is a pure function of the engine ids: every gateway with the same engines computes the same ring, and an engine
that joins or leaves only moves its own arcs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice

from xxhash import xxh3_64_intdigest

RING = 1 << 64
"""Length of a ring."""


class HashRing:
    """Positions of `virtual_nodes` points per engine on a 64-bit ring. `seed` makes rings independent."""

    def __init__(self, engine_ids: Sequence[str], *, virtual_nodes: int = 100, seed: int = 0) -> None:
        if virtual_nodes < 1:
            raise ValueError(f"a ring needs at least 1 virtual node per engine, not {virtual_nodes}")
        # Many points per engine: with one each, as in DualMap §3.2, shares differ by an order of magnitude.
        points = sorted(
            (xxh3_64_intdigest(f"{engine_id}#{replica}".encode(), seed), position)
            for position, engine_id in enumerate(engine_ids)
            for replica in range(virtual_nodes)
        )
        self.size = len(engine_ids)
        self._seed = seed
        self._points = [point for point, _ in points]
        self._owners = [position for _, position in points]

    def owner(self, key: int) -> int:
        """Return the index, in the given engine ids, of the next engine clockwise of the key's hash."""
        return self.owner_of(key.to_bytes(8, "little"))

    def owner_of(self, packed: bytes) -> int:
        """Return the owner of a key given as 8 little-endian bytes."""
        at = bisect_left(self._points, xxh3_64_intdigest(packed, self._seed))
        return self._owners[at if at < len(self._owners) else 0]

    def owners(self, key: int) -> Iterator[int]:
        """Yield the indices of all engines, without duplicates, clockwise from the key's hash."""
        at = bisect_left(self._points, xxh3_64_intdigest(key.to_bytes(8, "little"), self._seed))
        seen: set[int] = set()
        for owner in chain(islice(self._owners, at, None), islice(self._owners, at)):
            if owner not in seen:
                seen.add(owner)
                yield owner

    def arcs(self) -> list[tuple[int, int, int]]:
        """Return (begin, length, owner) of all arcs, clockwise. Lengths are exact and sum to RING.

        The first arc begins before 0 and wraps around.
        """
        arcs = []
        previous = self._points[-1] - RING if self._points else 0
        for point, owner in zip(self._points, self._owners, strict=True):
            arcs.append((previous, point - previous, owner))
            previous = point
        return arcs

    def lengths(self) -> list[int]:
        """Return each engine's total arc length, in units of 1/RING."""
        lengths = [0] * self.size
        for _, length, owner in self.arcs():
            lengths[owner] += length
        return lengths

    def shares(self) -> list[float]:
        """Return each engine's share of the ring, 0..1."""
        return [length / RING for length in self.lengths()]

    def check(self) -> None:
        """Raise AssertionError unless the points are sorted and the shares fill the ring."""
        if self._points != sorted(self._points):
            raise AssertionError("ring points are not sorted")
        if self._points and abs(sum(self.shares()) - 1) > 1e-9:
            raise AssertionError(f"shares add up to {sum(self.shares())}")


class CandidateRings:
    """Independent rings over the same engines. Each key has one candidate per ring (DualMap §3.2; A.9 for d > 2)."""

    def __init__(self, engine_ids: Sequence[str], *, rings: int = 2, virtual_nodes: int = 100) -> None:
        self.size = len(engine_ids)
        # No more rings than engines, or `candidates` would search for distinct ones without end.
        self._rings = [
            HashRing(engine_ids, virtual_nodes=virtual_nodes, seed=number + 1)
            for number in range(min(rings, max(self.size, 1)))
        ]

    @property
    def rings(self) -> tuple[HashRing, ...]:
        """The rings, in the order of the candidates."""
        return tuple(self._rings)

    def candidates(self, key: int) -> list[int]:
        """Return the indices of the key's candidates, at most one per engine.

        If rings agree, the later one yields the next engine that is not a candidate yet (eq. 5).
        """
        packed = key.to_bytes(8, "little")
        positions: list[int] = []
        for ring in self._rings:
            owner = ring.owner_of(packed)
            while owner in positions:
                owner = (owner + 1) % self.size
            positions.append(owner)
        return positions


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
