"""Each engine's share of the keys on a pool's hash rings, and the keys that would move if one left.

Each key has one candidate per ring. Shares are of candidates, so that they sum to 1 and the ideal is 1/n. They are
exact: arcs are integers. With two rings the rule that gives a key whose rings agree the next engine as its second
candidate (DualMap eq. 5) is counted in full: the rings are independent, so the second candidate is

    P(second = e) = r2(e) · (1 − r1(e)) + r2(e−1) · r1(e−1)        r: an engine's share of a ring

With more rings it is left out, and a candidate's share is its ring's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from routing.rings.hash_ring import RING, HashRing
from routing.rings.ring_plan import RingPlan, candidates_on


class EngineShare(msgspec.Struct, frozen=True):
    """Shares of one engine on a pool's rings, 0..1."""

    engine_id: str
    by_ring: tuple[float, ...]
    """Share of each ring."""
    share: float
    """Share of the candidates of all keys."""
    traffic: float | None
    """Share of the candidates of the observed requests, None without any."""
    gain: float | None = None
    """Increase of its share if the given engine left, None without one."""
    traffic_gain: float | None = None


class RingShares(msgspec.Struct, frozen=True):
    """Shares on a pool's rings, 0..1."""

    rings: int
    virtual_nodes: int
    ideal: float
    """An engine's share if all shares were equal."""
    engines: tuple[EngineShare, ...]
    """In the order of the engine ids."""
    requests: int
    """Number of requests behind `traffic`."""
    without: str = ""
    """The removed engine, empty without one."""
    moved: float | None = None
    """Share of candidates that would change to another engine."""
    keys_changed: float | None = None
    """Share of keys whose set of candidates would change."""
    traffic_moved: float | None = None
    """Share of the requests' candidates that would change to another engine."""


class UnknownEngineError(ValueError):
    """The engine is not on the rings."""


def ring_shares(
    plan: RingPlan, engine_ids: Sequence[str], traffic: Iterable[tuple[int, int]] = (), without: str = ""
) -> RingShares:
    """Return each engine's share, and what the departure of `without` would move.

    `traffic` maps keys to numbers of requests. Raises UnknownEngineError.
    """
    if without and without not in engine_ids:
        raise UnknownEngineError(f"{without} is not on the rings; it accepts no work, or belongs to another pool")
    seen = list(traffic)
    requests = sum(count for _, count in seen)
    rings = plan.over(engine_ids)
    before = candidate_shares(rings)
    loads = _traffic(rings, seen)
    on_rings = [ring.shares() for ring in rings]
    gains: list[float | None] = [None] * len(engine_ids)
    traffic_gains: list[float | None] = [None] * len(engine_ids)
    moved = keys_changed = traffic_moved = None
    if without and len(engine_ids) > 1:
        at = engine_ids.index(without)
        left = [engine_id_ for engine_id_ in engine_ids if engine_id_ != without]
        rings_after = plan.over(left)
        after, loads_after = candidate_shares(rings_after), _traffic(rings_after, seen)
        for position in range(len(engine_ids)):
            if position != at:
                # Behind the engine that left, positions are one lower.
                gains[position] = after[position - (position > at)] - before[position]
                if requests:
                    traffic_gains[position] = loads_after[position - (position > at)] - loads[position]
        moved = before[at]
        # A key has an engine once among its candidates, so these are as many keys.
        keys_changed = min(1.0, before[at] * len(rings))
        traffic_moved = loads[at] if requests else None
    return RingShares(
        rings=len(rings),
        virtual_nodes=plan.virtual_nodes,
        ideal=1 / len(engine_ids) if engine_ids else 0.0,
        engines=tuple(
            EngineShare(
                engine_id,
                tuple(shares[position] for shares in on_rings),
                before[position],
                loads[position] if requests else None,
                gains[position],
                traffic_gains[position],
            )
            for position, engine_id in enumerate(engine_ids)
        ),
        requests=requests,
        without=without,
        moved=moved,
        keys_changed=keys_changed,
        traffic_moved=traffic_moved,
    )


def candidate_shares(rings: Sequence[HashRing]) -> list[float]:
    """Return each engine's share of the candidates of all keys, 0..1."""
    lengths = [ring.lengths() for ring in rings]
    size = rings[0].size if rings else 0
    if len(rings) == 2 and size > 1:
        first, second = lengths
        # In integers, which are exact at any size; index −1 is the last engine, as on the ring.
        weights = [
            first[at] * RING + second[at] * (RING - first[at]) + second[at - 1] * first[at - 1] for at in range(size)
        ]
        return [weight / (2 * RING * RING) for weight in weights]
    return [sum(length[at] for length in lengths) / (len(rings) * RING) for at in range(size)]


def _traffic(rings: Sequence[HashRing], seen: Sequence[tuple[int, int]]) -> list[float]:
    """Return each engine's share of these requests' candidates, all 0 without requests."""
    size = rings[0].size if rings else 0
    counts = [0] * size
    if size:
        for key, count in seen:
            for at in candidates_on(rings, key):
                counts[at] += count
    total = sum(counts)
    return [count / total if total else 0.0 for count in counts]
