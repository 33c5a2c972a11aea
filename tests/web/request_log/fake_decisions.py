"""Decisions that nobody made, for the drawers of a fleet that does not exist."""

from __future__ import annotations

import random
import time
from types import SimpleNamespace
from typing import Any, cast

from gateway.contracts.fleet_sample import FleetSample
from gateway.pool.recent_decisions import DecisionRecord, RecentDecisions
from routing.values import reasons
from routing.values.decision import Candidate, Decision

REASONS = (reasons.LEAST_COST, reasons.LONGEST_MATCH, reasons.LEAST_COST, reasons.EQUAL_MATCH)


MOST_ENGINES = 40


def fake_decisions(sample: FleetSample, per_engine: int = 8, seed: int = 3) -> RecentDecisions:
    """Return records of the first engines of the sample, the newest just made."""
    rng, recent = random.Random(seed), RecentDecisions()
    engines = {engine.engine_id: SimpleNamespace(entry=SimpleNamespace(name=engine.name)) for engine in sample.engines}
    for number in range(per_engine):
        for engine in sample.engines[:MOST_ENGINES]:
            recent.add(_record(engine.engine_id, engine.pool_id, engines, rng, per_engine - number))
    return recent


def _record(engine_id: str, pool_id: str, engines: dict[str, Any], rng: random.Random, age: int) -> DecisionRecord:
    prompt = rng.randint(2, 24) * 512
    hit = rng.randint(0, prompt // 512) * 512
    wait, compute = rng.random() * 0.8, (prompt - hit) / 12_000
    others = rng.sample(sorted(engines), k=min(3, len(engines)))
    candidates = [Candidate(engine_id, hit, wait, compute, wait + 2 * compute)] + [
        Candidate(other, 0, wait / 2, prompt / 12_000, wait / 2 + prompt / 6_000)
        for other in others
        if other != engine_id
    ]
    name = f"{age:02d}{rng.getrandbits(96):024x}"
    decision = Decision(
        name, pool_id, engine_id, 1, "least_cost", "shed", 41, rng.choice(REASONS), prompt, hit, wait, compute, 0.0,
        wait / 3, tuple(candidates), queue_reason=reasons.SHORTEST_FEASIBLE if wait > 0.4 else "",
        overtook=2 if wait > 0.4 else 0,
    )  # fmt: skip
    record = DecisionRecord(
        decision, cast("Any", SimpleNamespace(engines=engines)), "acme", "messages", 0.0, 3.5, time.time() - age * 0.7,
        (engine_id,),
    )  # fmt: skip
    if age > 1:
        record.first_token_s = wait + compute + (3.0 if rng.random() < 0.1 else 0.05)
        record.cached_tokens, record.output_tokens, record.outcome = (
            max(0, hit - rng.choice((0, 0, 512))),
            120,
            "completed",
        )
    return record
