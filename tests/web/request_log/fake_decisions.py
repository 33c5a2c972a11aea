"""Generated decisions, and a gateway that serves them, for the drawers of a fake fleet."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any

from gateway.bus.bus import Bus
from gateway.contracts.fleet_sample import EngineSample, FleetSample
from gateway.contracts.recent_question import (
    ANSWER,
    ANSWERED,
    ASKED,
    QUESTION,
    RecentAnswer,
    RecentQuestion,
    RunningRequest,
)
from gateway.contracts.stored_decision import RUNNING, StoredDecision
from routing.values import reasons
from routing.values.decision import Candidate, Decision
from tests.gateway.ended_requests import row_of

REASONS = (reasons.LEAST_COST, reasons.LONGEST_MATCH, reasons.LEAST_COST, reasons.EQUAL_MATCH)
MOST_ENGINES = 40


class FakeGateway:
    """Responds to the console's queries from `decisions`, newest first."""

    def __init__(self, bus: Bus, decisions: Sequence[StoredDecision] = ()) -> None:
        self.decisions = decisions
        self.running: tuple[RunningRequest, ...] = ()
        self._bus = bus
        self.stop = bus.subscribe(ASKED, self._receive)

    def of_engine(self, engine_id: str) -> list[StoredDecision]:
        return [decision for decision in self.decisions if decision.decision.engine_id == engine_id]

    def _receive(self, _topic: str, value: bytes) -> None:
        question = QUESTION.decode(value)
        running = tuple(
            item for item in self.running if question.running and question.pool_ids in ((), (item.pool_id,))
        )
        decisions = () if question.running else tuple(self._asked_for(question))
        answer = RecentAnswer(question.question_id, decisions, running)
        self._bus.notify(ANSWERED + question.asker, ANSWER.encode(answer))

    def _asked_for(self, question: RecentQuestion) -> list[StoredDecision]:
        if question.engine_id:
            return self.of_engine(question.engine_id)
        return [decision for decision in self.decisions if decision.decision.decision_id == question.decision_id]


def fake_decisions(sample: FleetSample, per_engine: int = 8, seed: int = 3) -> list[StoredDecision]:
    """Return records of the first engines of the sample, newest first; the newest have the current time."""
    rng = random.Random(seed)
    return [
        _record(engine, sample.engines, rng, age + 1)
        for age in range(per_engine)
        for engine in sample.engines[:MOST_ENGINES]
    ]


def _record(engine: EngineSample, engines: Sequence[EngineSample], rng: random.Random, age: int) -> StoredDecision:
    prompt = rng.randint(2, 24) * 512
    hit = rng.randint(0, prompt // 512) * 512
    wait, compute = rng.random() * 0.8, (prompt - hit) / 12_000
    others = [item.engine_id for item in rng.sample(engines, k=min(3, len(engines))) if item is not engine]
    candidates = [Candidate(engine.engine_id, hit, wait, compute, wait + 2 * compute)] + [
        Candidate(other, 0, wait / 2, prompt / 12_000, wait / 2 + prompt / 6_000) for other in others
    ]
    name = f"{age:02d}{rng.getrandbits(96):024x}"
    decision = Decision(
        name, engine.pool_id, engine.engine_id, 1, "least_cost", "late_last", 41, rng.choice(REASONS), prompt, hit,
        wait, compute, 0.0, wait / 3, tuple(candidates),
        queue_reason=reasons.SHORTEST_FEASIBLE if wait > 0.4 else "",
        overtook=2 if wait > 0.4 else 0,
    )  # fmt: skip
    ended = age > 1
    facts: dict[str, Any] = {
        "decision": decision, "arrived_at": time.time() - age * 0.7 - wait / 3, "region": "eu-west",
        "served_model": "chat-70b", "tenant_id": "acme", "key_source": "messages", "ttft_slo_s": 3.5,
        "attempts": (engine.engine_id,), "outcome": "completed" if ended else RUNNING,
        "first_token_after_s": wait + compute + (3.0 if rng.random() < 0.1 else 0.05) if ended else None,
        "cached_tokens": max(0, hit - rng.choice((0, 0, 512))) if ended else None,
        "output_tokens": 120 if ended else None,
    }  # fmt: skip
    return StoredDecision(**{**row_of(decision), **facts})
