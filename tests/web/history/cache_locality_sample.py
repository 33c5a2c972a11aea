"""Example reports of a pool's cache locality, for tests of its pages."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from controlplane.fleet.models.engine import Engine
from controlplane.history.cache_locality.intake import CacheLocalityIntake
from gateway.bus.bus import InProcessBus
from gateway.contracts.cache_locality_sample import (
    TOPIC,
    CacheLocalitySample,
    EngineCacheLocality,
    HitPoint,
    PoolCacheLocality,
    SharedPrefix,
    SplitMean,
    SplitSpan,
    encode_cache_locality,
)
from routing.rings.ring_plan import RingPlan

PAIRS = RingPlan(2, 100, True, 2, True)


def pool_cache_locality(
    made_of: Sequence[Engine], /, rings: RingPlan | None = PAIRS, **changes: Any
) -> PoolCacheLocality:
    """Return a pool's report: 100 requests, 60 of which share 6 blocks, and one untrusted engine."""
    ids = tuple(engine.engine_id for engine in made_of)
    fields: dict[str, Any] = {
        "pool_id": made_of[0].pool.slug, "placement": "dual_map" if rings else "least_cost", "policy_version": 7,
        "block_tokens": 16, "requests": 100, "sampled": 50, "span_s": 62.0, "accepting": ids, "rings": rings,
        "keys": {"000000000000a11c": 60, "00000000000000b0": 40},
        "engines": tuple(engine_cache_locality(engine, number) for number, engine in enumerate(made_of)),
        "prefixes": (
            SharedPrefix("6a37cb0000000000", -1, 0, 1, 6, 60, ids[:2], 2),
            SharedPrefix("bb12000000000000", 0, 1, 7, 9, 45, (), 0),
            SharedPrefix("cc34000000000000", -1, 0, 1, 2, 20, ids, 2),
        ),
    }  # fmt: skip
    return PoolCacheLocality(**(fields | changes))


def engine_cache_locality(engine: Engine, number: int) -> EngineCacheLocality:
    """Return one engine's report. The hits of the first engine differ from the prediction."""
    spans = tuple(
        SplitSpan(span_s, 20, SplitMean(0.25, 0.0, 0.5 + number), SplitMean(1.0, 0.5, 1.0 + number))
        for span_s in (60.0, 300.0, 900.0)
    )
    wrong = number == 0
    return EngineCacheLocality(
        engine_id=engine.engine_id, name=engine.name, accepts=True, requests=50 if wrong else 10, split=spans,
        trust="blind" if wrong else "exact", cause="tokenizer" if wrong else "", share=0.1 if wrong else 1.0,
        trust_reason="it had 10% of the tokens in the index" if wrong else "",
        trust_since=time.time() - 125 if wrong else None, compared=20, differing=20 if wrong else 0,
        believed_tokens=4000, reported_tokens=400 if wrong else 4000,
        points=tuple(HitPoint(640, 320, 32 if wrong else 320, 10.0 + age, wrong) for age in range(3)),
    )  # fmt: skip


def intake_of(*pools: PoolCacheLocality) -> CacheLocalityIntake:
    """Return an intake that has just received these reports."""
    bus = InProcessBus()
    bus.publish(TOPIC, encode_cache_locality(CacheLocalitySample(at=time.time() - 1, pools=pools)))
    return CacheLocalityIntake(bus)
