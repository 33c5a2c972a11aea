"""Builds the record of one decision: its terms, what was known then, and its outcome."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from gateway.contracts.hit_sample import HitSample, mismatch_of
from gateway.contracts.key_source import COUNTED, PREFIX
from gateway.contracts.stored_decision import RUNNING, UNANSWERED, Known, StoredDecision, session_digest
from gateway.pool.recent_decisions import DecisionRecord
from gateway.pool.request_loads import saved_tokens, stored_load
from gateway.traffic.past_moments import Moments, age_of
from routing.cost.cost_model import PrefillCost
from routing.policy.admission_document import OFF
from routing.values.decision import Decision

if TYPE_CHECKING:
    from gateway.pool.live_pool import LivePool


class _Engine(NamedTuple):
    """What records of one interval say of an engine."""

    name: str
    trust: str
    reports: Moments
    events: Moments | None


_GONE = _Engine("", "", array("d"), None)


class DecisionRecorder:
    """Makes the records of one interval. Mutable: what it looked up of engines, which holds for that long."""

    def __init__(self, fleet_secret: bytes, snapshot_version: int = 0, snapshot_age_s: float | None = None) -> None:
        self._secret = fleet_secret
        self._version = snapshot_version
        self._age_s = snapshot_age_s
        self._costs: dict[tuple[str, str], tuple[PrefillCost, float]] = {}
        self._engines: dict[tuple[str, str], _Engine] = {}

    def stored(
        self,
        record: DecisionRecord,
        sample: HitSample | None,
        *,
        share: float = 1.0,
        overtaken_s: float = 0.0,
    ) -> StoredDecision:
        """Return the record; `sample` compares its hits."""
        pool, decision = record.pool, record.decision
        entry, arrived_s = pool.entry, record.arrived_s
        admission = entry.policy.admission
        cost, speed = self._cost(pool, decision.engine_id)
        engine = pool.engines.get(decision.engine_id)
        pattern = engine.hits.verdict.cause if engine is not None else ""
        return StoredDecision(
            decision,
            _arrived_at(record),
            entry.region,
            entry.served_model,
            record.tenant_id,
            session_digest(self._secret, record.session_id),
            record.key_source,
            record.ttft_slo_s,
            record.attempts,
            record.outcome or UNANSWERED,
            record.error,
            share,
            record.late,
            max(0.0, decision.decided_s - arrived_s),
            decision.queued_s if decision.engine_id else None,
            _after(record, record.handed_over_s),
            record.ttft_s,
            _after(record, record.finished_s),
            believed_tokens(decision, entry.block_tokens) if sample is None else sample.believed_tokens,
            record.cached_tokens,
            record.engine_prompt_tokens,
            record.output_tokens,
            entry.block_tokens,
            mismatch_of(sample, pattern) if sample is not None else "",
            self._known(pool, decision),
            len(pool.router.view.roster.accepting),
            _decoder_name(pool, decision) if decision.pair is not None else "",
            cost,
            speed,
            self._version,
            self._age_s,
            record.slo_class,
            record.priority,
            None,
            _after(record, record.asked_s) or 0.0,
            stored_load(record) if record.load_ordered else None,
            record.advisory,
            record.hop,
            admission.mode != OFF and admission.defer_s > 0,
            overtaken_s,
        )

    def _cost(self, pool: LivePool, engine_id: str) -> tuple[PrefillCost, float]:
        key = pool.entry.pool_id, engine_id
        found = self._costs.get(key)
        if found is None:
            found = self._costs[key] = _engine_cost(pool, engine_id)
        return found

    def _known(self, pool: LivePool, decision: Decision) -> tuple[Known, ...]:
        engines, pool_id, known = self._engines, pool.entry.pool_id, []
        at_s = max(decision.decided_s, decision.migrated_s)
        for candidate in decision.candidates:
            engine_id = candidate.engine_id
            found = engines.get((pool_id, engine_id)) or self._look_up(pool, engine_id)
            name, trust, reports, events = found
            heard = None if events is None else age_of(events, at_s)
            known.append(Known(engine_id, name, trust, age_of(reports, at_s), heard))
        return tuple(known)

    def _look_up(self, pool: LivePool, engine_id: str) -> _Engine:
        engine = pool.engines.get(engine_id)
        if engine is None:
            return _GONE
        trust = engine.index_trust(by_dispatches=pool.fed_by_dispatches(engine)).grade
        events = engine.intake.heard.copy() if engine.intake is not None else None
        found = _Engine(engine.entry.name, trust, engine.report_times.copy(), events)
        self._engines[pool.entry.pool_id, engine_id] = found
        return found


def as_it_stands(record: DecisionRecord) -> StoredDecision:
    """Return the record of a request that may still be running; nothing is noted of its engine."""
    stored = DecisionRecorder(b"").stored(record, hit_sample(record))
    # The session's digest needs the fleet's secret, and is worth nothing before the record can be searched.
    return msgspec.structs.replace(
        stored, session="", outcome=record.outcome or RUNNING, late=record.misses_objective()
    )


def hit_sample(record: DecisionRecord) -> HitSample | None:
    """Return predicted and reported hit side by side.

    None where the engine is gone or reported none, where it loaded and did not tell how much, and where the prompt was
    known in part only.
    """
    decision, reported = record.decision, record.cached_tokens
    engine = record.pool.engines.get(decision.engine_id)
    if engine is None or reported is None or record.finished_s is None or record.key_source == PREFIX:
        return None
    if record.load_ordered and record.load is None:
        return None
    watch, block_tokens = engine.hits, record.pool.entry.block_tokens
    # The index says what the engine held; what it loaded came from elsewhere.
    reported = max(0, reported - saved_tokens(record))
    counted = record.key_source in COUNTED
    return HitSample(
        decision.decided_s,
        decision.prompt_tokens,
        believed_tokens(decision, block_tokens),
        reported,
        block_tokens,
        record.engine_prompt_tokens if counted else None,
        watch.gap_near(decision.decided_s, record.finished_s),
        watch.removed_between(decision.decided_s, record.finished_s),
        record.reporter,
    )


def believed_tokens(decision: Decision, block_tokens: int) -> int:
    """Return the prompt's tokens that the engine held by the index when it was dispatched, whatever the trust."""
    if not decision.candidates:
        return decision.hit_tokens
    chosen = decision.candidates[0]
    held = min(chosen.blocks * block_tokens, decision.prompt_tokens)
    if decision.fetch is not None and decision.fetch.node:
        # The expected hit is what a node has.
        return held
    if chosen.hit_tokens <= 0 or chosen.hit_tokens == decision.hit_tokens:
        return held if chosen.blocks else decision.hit_tokens
    # Dispatches estimate anew; the trust in between is that of the choice.
    return min(decision.prompt_tokens, round(decision.hit_tokens * held / chosen.hit_tokens))


def _decoder_name(pool: LivePool, decision: Decision) -> str:
    decoder = pool.engines.get(decision.pair.engine_id) if decision.pair is not None else None
    return decoder.entry.name if decoder is not None else ""


def _arrived_at(record: DecisionRecord) -> float:
    decision = record.decision
    return record.decided_at - (decision.queued_s if decision.engine_id else _after(record, record.finished_s) or 0.0)


def _after(record: DecisionRecord, moment_s: float | None) -> float | None:
    return None if moment_s is None else moment_s - record.arrived_s


def _engine_cost(pool: LivePool, engine_id: str) -> tuple[PrefillCost, float]:
    """Return the cost model of the engine's prefills, and its speed.

    Learned where the policy wants that and it is better, else the policy's.
    """
    engine, policy = pool.engines.get(engine_id), pool.entry.policy
    if engine is None:
        return PrefillCost.of(policy.prefill_cost), 1.0
    learned = pool.entry.costs.get(engine.entry.kind) if policy.cost == "fitted" else None
    if learned is None or not learned.better:
        return PrefillCost.of(policy.prefill_cost), engine.entry.speed
    return learned.prefill, engine.entry.speed * learned.speeds.get(engine_id, 1.0)
