"""A pool's hash rings as its gateway builds them or, without rings, its engines' shares of requests."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.history.cache_locality.intake import PoolCacheReport
from gateway.contracts.cache_locality_sample import PoolCacheLocality
from routing.rings.ring_shares import EngineShare, RingShares, UnknownEngineError, ring_shares


@dataclass(frozen=True, slots=True)
class RingLine:
    """One engine: its name, its share of the rings (None: no rings, or no new work), and its requests."""

    engine_id: str
    name: str
    on_rings: EngineShare | None
    requests: int
    dispatched: float | None
    """Its share of the observed requests, 0..1; None without requests."""


@dataclass(frozen=True, slots=True)
class RingsReading:
    """Current rings of a pool. `shares` is None if its placement uses no rings."""

    report: PoolCacheReport
    shares: RingShares | None
    lines: tuple[RingLine, ...]
    """Engines by name, without engines that accept no work and got no requests."""


def rings_reading(report: PoolCacheReport, without: str = "") -> RingsReading:
    """Return shares of keys and of requests. `without` is the id or name of an engine to omit.

    Raises UnknownEngineError for an engine that is not on the rings.
    """
    pool = report.pool
    shares = None
    if pool.rings is not None:
        traffic = [(int(key, 16), count) for key, count in pool.keys.items()]
        shares = ring_shares(pool.rings, pool.accepting, traffic, engine_id_of(pool, without))
    elif without:
        raise UnknownEngineError(f"{pool.placement} uses no hash rings, so no keys belong to {without}")
    placed = {engine.engine_id: engine for engine in shares.engines} if shares is not None else {}
    lines = [
        RingLine(
            engine.engine_id,
            engine.name,
            placed.get(engine.engine_id),
            engine.requests,
            engine.requests / pool.requests if pool.requests else None,
        )
        for engine in pool.engines
        if engine.accepts or engine.requests
    ]
    return RingsReading(report, shares, tuple(lines))


def engine_id_of(pool: PoolCacheLocality, wanted: str) -> str:
    """Return the id of the engine with this id or name. An unknown text is returned unchanged."""
    by_name = {engine.name: engine.engine_id for engine in pool.engines}
    return wanted if wanted in pool.accepting else by_name.get(wanted, wanted)
