"""Consistent hash rings over engine ids (DualMap §3.4; Karger et al. 1997), with virtual nodes.

A ring is a pure function of the engine ids, so that every gateway that knows the same engines sees
the same ring, and an engine's arrival or departure moves only its own arcs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from xxhash import xxh3_64_intdigest


class HashRing:
    """Positions of `virtual_nodes` points per engine on a 64-bit ring; `seed` makes rings independent."""

    def __init__(self, engine_ids: Sequence[str], *, virtual_nodes: int = 100, seed: int = 0) -> None:
        if virtual_nodes < 1:
            raise ValueError(f"a ring needs at least 1 virtual node per engine, not {virtual_nodes}")
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
        """Return the position (in the given engine ids) of the next engine clockwise of the key's hash."""
        at = bisect_left(self._points, xxh3_64_intdigest(key.to_bytes(8, "little"), self._seed))
        return self._owners[at if at < len(self._owners) else 0]

    def shares(self) -> list[float]:
        """Return each engine's share of the ring, 0..1."""
        total = 1 << 64
        shares = [0.0] * self.size
        previous = self._points[-1] - total if self._points else 0
        for point, owner in zip(self._points, self._owners, strict=True):
            shares[owner] += (point - previous) / total
            previous = point
        return shares

    def check(self) -> None:
        """Raise AssertionError unless the points are sorted and the shares fill the ring."""
        if self._points != sorted(self._points):
            raise AssertionError("ring points are not sorted")
        if self._points and abs(sum(self.shares()) - 1) > 1e-9:
            raise AssertionError(f"shares add up to {sum(self.shares())}")


class DualRing:
    """Two independent rings over the same engines: each key has two distinct candidates (DualMap §3.2)."""

    def __init__(self, engine_ids: Sequence[str], *, virtual_nodes: int = 100) -> None:
        self.size = len(engine_ids)
        self._first = HashRing(engine_ids, virtual_nodes=virtual_nodes, seed=1)
        self._second = HashRing(engine_ids, virtual_nodes=virtual_nodes, seed=2)

    def pair(self, key: int) -> tuple[int, int]:
        """Return the positions of the key's two candidates; they differ whenever there are two engines (eq. 5)."""
        first = self._first.owner(key)
        second = self._second.owner(key)
        if first == second:
            second = (first + 1) % self.size
        return first, second
