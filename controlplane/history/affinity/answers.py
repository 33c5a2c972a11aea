"""Cache locality in the API's format."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from controlplane.history.affinity.intake import PoolWord
from controlplane.history.affinity.rings import RingLine, rings_reading
from gateway.contracts.affinity_sample import EngineAffinity, PoolAffinity

_UNTOLD_RINGS: dict[str, Any] = {
    "at": None,
    "gateway": "",
    "placement": "",
    "rings": 0,
    "virtual_nodes": 0,
    "ideal": None,
    "requests": 0,
    "without": "",
    "moved": None,
    "keys_changed": None,
    "traffic_moved": None,
    "engines": [],
}
_UNTOLD: dict[str, Any] = {
    "at": None,
    "gateway": "",
    "gateways": 0,
    "placement": "",
    "block_tokens": 0,
    "requests": 0,
    "span_s": 0.0,
    "prefixes": [],
    "engines": [],
}


def rings_answer(pool: str, word: PoolWord | None, without: str) -> dict[str, Any]:
    """Return the pool's rings; raises UnknownEngineError for an engine that is not on them."""
    if word is None:
        return {"pool": pool, **_UNTOLD_RINGS}
    reading = rings_reading(word, without)
    shares = reading.shares
    plan = word.pool.rings
    return {
        "pool": pool,
        "at": _moment(word.at),
        "gateway": word.gateway,
        "placement": word.pool.placement,
        "rings": shares.rings if shares is not None else 0,
        "virtual_nodes": plan.virtual_nodes if plan is not None else 0,
        "ideal": shares.ideal if shares is not None else None,
        "requests": word.pool.requests,
        "without": shares.without if shares is not None else "",
        "moved": shares.moved if shares is not None else None,
        "keys_changed": shares.keys_changed if shares is not None else None,
        "traffic_moved": shares.traffic_moved if shares is not None else None,
        "engines": [_ring_engine(line) for line in reading.lines],
    }


def affinity_answer(pool: str, word: PoolWord | None) -> dict[str, Any]:
    """Return everything but the rings."""
    if word is None:
        return {"pool": pool, **_UNTOLD}
    told = word.pool
    return {
        "pool": pool,
        "at": _moment(word.at),
        "gateway": word.gateway,
        "gateways": word.gateways,
        "placement": told.placement,
        "block_tokens": told.block_tokens,
        "requests": told.requests,
        "span_s": told.span_s,
        "prefixes": _prefixes(told),
        "engines": [
            {**hits_answer(each, told.pool_id, word), "requests": each.requests, "ttft": each.split}
            for each in told.engines
        ],
    }


def hits_answer(engine: EngineAffinity, pool: str, word: PoolWord | None) -> dict[str, Any]:
    """Return predicted and reported hits of one engine."""
    return {
        "engine": engine.engine_id,
        "name": engine.name,
        "pool": pool,
        "at": _moment(word.at) if word is not None else None,
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
    placed = line.on_rings
    return {
        "engine": line.engine_id,
        "name": line.name,
        "by_ring": list(placed.by_ring) if placed is not None else [],
        "share": placed.share if placed is not None else None,
        "traffic": placed.traffic if placed is not None else None,
        "granted": line.granted,
        "gain": placed.gain if placed is not None else None,
        "traffic_gain": placed.traffic_gain if placed is not None else None,
    }


def _prefixes(told: PoolAffinity) -> list[dict[str, Any]]:
    return [
        {
            "key": each.key,
            "parent": told.prefixes[each.parent].key if each.parent >= 0 else None,
            "first_block": each.first_block,
            "last_block": each.last_block,
            "requests": each.requests,
            "share": each.requests / told.requests if told.requests else 0.0,
            "holders": list(each.holders),
            "key_blocks": each.key_blocks,
        }
        for each in told.prefixes
    ]


def _moment(unix: float) -> datetime:
    return datetime.fromtimestamp(unix, UTC)
