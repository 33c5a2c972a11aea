"""Cache locality in the API's format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from controlplane.history.cache_locality.intake import PoolCacheReport
from controlplane.history.cache_locality.rings import RingLine, rings_reading
from gateway.contracts.cache_locality_sample import EngineCacheLocality, PoolCacheLocality

Copies = Callable[[str], Sequence[int | None]]
_NO_SHARES: dict[str, Any] = {
    "rings": 0,
    "ideal": None,
    "without": "",
    "moved": None,
    "keys_changed": None,
    "traffic_moved": None,
}
_NOT_PLACED: dict[str, Any] = {"by_ring": [], "share": None, "traffic": None, "gain": None, "traffic_gain": None}


def rings_answer(pool: str, report: PoolCacheReport | None, without: str) -> dict[str, Any]:
    """Return the pool's rings. Raises UnknownEngineError for an engine that is not on them."""
    reading = rings_reading(report, without) if report is not None else None
    shares = reading.shares if reading is not None else None
    plan = report.pool.rings if report is not None else None
    return {
        "pool": pool,
        **_reported_by(report),
        "virtual_nodes": plan.virtual_nodes if plan is not None else 0,
        **{name: getattr(shares, name, otherwise) for name, otherwise in _NO_SHARES.items()},
        "engines": [_ring_engine(line) for line in reading.lines] if reading is not None else [],
    }


def _reported_by(report: PoolCacheReport | None) -> dict[str, Any]:
    if report is None:
        return {"at": None, "gateway": "", "placement": "", "requests": 0}
    locality = report.pool
    return {
        "at": _moment(report.at),
        "gateway": report.gateway,
        "placement": locality.placement,
        "requests": locality.requests,
    }


def cache_locality_answer(pool: str, report: PoolCacheReport | None, copies: Copies) -> dict[str, Any]:
    """Return the pool's cache locality without the rings. `copies` returns a prefix's copies per minute."""
    locality = report.pool if report is not None else None
    return {
        "pool": pool,
        **_reported_by(report),
        "gateways": report.gateways if report is not None else 0,
        "block_tokens": locality.block_tokens if locality is not None else 0,
        "span_s": locality.span_s if locality is not None else 0.0,
        "prefixes": _prefixes(locality, copies) if locality is not None else [],
        "engines": [
            {**hits_answer(engine, locality.pool_id, report), "requests": engine.requests, "ttft": engine.split}
            for engine in locality.engines
        ]
        if locality is not None
        else [],
    }


def hits_answer(engine: EngineCacheLocality, pool: str, report: PoolCacheReport | None) -> dict[str, Any]:
    """Return predicted and reported hits of one engine."""
    return {
        "engine": engine.engine_id,
        "name": engine.name,
        "pool": pool,
        "at": _moment(report.at) if report is not None else None,
        "compared": engine.compared,
        "differing": engine.differing,
        "predicted_tokens": engine.believed_tokens,
        "reported_tokens": engine.reported_tokens,
        "ratio": engine.reported_tokens / engine.believed_tokens if engine.believed_tokens else None,
        "trust": engine.trust,
        "trust_reason": engine.trust_reason,
        "trust_since": _moment(engine.trust_since) if engine.trust_since is not None else None,
        "cause": engine.cause,
    }


def _ring_engine(line: RingLine) -> dict[str, Any]:
    return {
        "engine": line.engine_id,
        "name": line.name,
        "dispatched": line.dispatched,
        **{name: getattr(line.on_rings, name, otherwise) for name, otherwise in _NOT_PLACED.items()},
    }


def _prefixes(locality: PoolCacheLocality, copies: Copies) -> list[dict[str, Any]]:
    return [
        {
            "key": prefix.key,
            "parent": locality.prefixes[prefix.parent].key if prefix.parent >= 0 else None,
            "first_block": prefix.first_block,
            "last_block": prefix.last_block,
            "requests": prefix.requests,
            "share": prefix.requests / locality.requests if locality.requests else 0.0,
            "holders": list(prefix.holders),
            "key_blocks": prefix.key_blocks,
            "copies": copies(prefix.key),
        }
        for prefix in locality.prefixes
    ]


def _moment(unix: float) -> datetime:
    return datetime.fromtimestamp(unix, UTC)
