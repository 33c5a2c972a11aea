"""Builds the record of one decision: its score terms, the facts known at that time, and its outcome."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from gateway.contracts.hit_sample import HitSample, mismatch_of
from gateway.contracts.stored_decision import (
    RUNNING,
    FailedAttempt,
    Known,
    StoredDecision,
    TokenizerWait,
    session_digest,
)
from gateway.pools.pool.ended_hits import believed_tokens, hit_sample
from gateway.pools.pool.kv_load import stored_load
from gateway.pools.pool.recent_decisions import DecisionRecord
from gateway.pools.traffic.past_moments import PastMoments
from gateway.reports.traffic_rows import row_values
from routing.cost.cost_model import PrefillCost
from routing.policy.admission_document import OFF
from routing.values.decision import Decision

if TYPE_CHECKING:
    from gateway.pools.pool.live_pool import LivePool


class _Engine(NamedTuple):
    """Facts of an engine in the records of one interval."""

    name: str
    trust: str
    reports: PastMoments
    events: PastMoments | None


_GONE = _Engine("", "", PastMoments(), None)


class DecisionRecorder:
    """Creates the records under one snapshot. Mutable: cached facts of engines.

    Their costs are valid for the snapshot, their names and trust until the next call of `begin`.
    """

    def __init__(self, digest_key: bytes, snapshot_version: int = 0) -> None:
        self.version = snapshot_version
        self._digest_key = digest_key
        self._age_s: float | None = None
        self._costs: dict[tuple[str, str], tuple[PrefillCost, float]] = {}
        self._engines: defaultdict[str, dict[str, _Engine]] = defaultdict(dict)

    def begin(self, snapshot_age_s: float | None) -> None:
        """Begin an interval, and read the engines' facts again."""
        self._age_s = snapshot_age_s
        self._engines.clear()

    def stored(
        self,
        record: DecisionRecord,
        sample: HitSample | None,
        *,
        share: float = 1.0,
        overtaken_s: float = 0.0,
    ) -> StoredDecision:
        """Return the record. `sample` compares its hits."""
        pool, decision = record.pool, record.decision
        entry, arrived_s, handed_over_s = pool.entry, record.arrived_s, record.handed_over_s
        parent = record.parent_session
        admission, asked_s = entry.policy.admission, record.asked_s
        cost, speed = self._cost(pool, decision.engine_id)
        engine = pool.engines.get(decision.engine_id)
        pattern = engine.hits.verdict.cause if engine is not None else ""
        return StoredDecision(
            *row_values(record, self._digest_key),
            decision,
            entry.region,
            entry.served_model,
            record.tenant_id,
            record.key_source,
            record.ttft_slo_s,
            record.attempts,
            record.error,
            share,
            max(0.0, decision.decided_s - arrived_s),
            decision.queued_s if decision.engine_id else None,
            None if handed_over_s is None else handed_over_s - arrived_s,
            believed_tokens(decision, entry.block_tokens) if sample is None else sample.believed_tokens,
            record.engine_prompt_tokens,
            entry.block_tokens,
            mismatch_of(sample, pattern) if sample is not None else "",
            self._known(pool, decision),
            _decoder_name(pool, decision) if decision.pair is not None else "",
            cost,
            speed,
            self.version,
            self._age_s,
            record.slo_class,
            None,
            0.0 if asked_s is None else asked_s - arrived_s,
            stored_load(record) if record.load_ordered else None,
            record.advisory,
            record.hop,
            admission.mode != OFF and admission.defer_s > 0,
            overtaken_s,
            record.client_request_id,
            record.asked_model,
            record.door,
            parent and session_digest(self._digest_key, parent),
            record.service,
            record.key_id,
            tuple([TokenizerWait(name, _name(pool, name), seconds) for name, seconds in record.tokenizers]),
            _failures(record) if record.failures else (),
        )

    def _cost(self, pool: LivePool, engine_id: str) -> tuple[PrefillCost, float]:
        key = pool.entry.pool_id, engine_id
        cost = self._costs.get(key)
        if cost is None:
            cost = self._costs[key] = _engine_cost(pool, engine_id)
        return cost

    def _known(self, pool: LivePool, decision: Decision) -> tuple[Known, ...]:
        engines, known = self._engines[pool.entry.pool_id], []
        at_s = max(decision.decided_s, decision.migrated_s)
        for candidate in decision.candidates:
            engine_id = candidate.engine_id
            facts = engines.get(engine_id)
            if facts is None:
                facts = engines[engine_id] = _engine_facts(pool, engine_id)
            name, trust, reports, events = facts
            event_age_s = None if events is None else events.age_s(at_s)
            known.append(Known(engine_id, name, trust, reports.age_s(at_s), event_age_s))
        return tuple(known)


def _engine_facts(pool: LivePool, engine_id: str) -> _Engine:
    engine = pool.engines.get(engine_id)
    if engine is None:
        return _GONE
    trust = engine.index_trust(by_dispatches=pool.fed_by_dispatches(engine)).grade
    events = engine.intake.received if engine.intake is not None else None
    return _Engine(engine.entry.name, trust, engine.report_times, events)


def current_decision(record: DecisionRecord) -> StoredDecision:
    """Return the record of a request that may still be running, without changing its engine's state."""
    stored = DecisionRecorder(b"").stored(record, hit_sample(record))
    # Digests need the fleet's secret, and are worth nothing before the record can be searched.
    return msgspec.structs.replace(
        stored,
        session="",
        tenant="",
        workflow="",
        parent_session="",
        outcome=record.outcome or RUNNING,
        late=record.misses_objective(),
    )


def _name(pool: LivePool, engine_id: str) -> str:
    engine = pool.engines.get(engine_id)
    return engine.entry.name if engine is not None else ""


def _failures(record: DecisionRecord) -> tuple[FailedAttempt, ...]:
    pool, arrived_s = record.pool, record.arrived_s
    return tuple(
        FailedAttempt(engine_id, _name(pool, engine_id), cause, max(0.0, begun_s - arrived_s), ended_s - arrived_s)
        for engine_id, cause, begun_s, ended_s in record.failures
    )


def _decoder_name(pool: LivePool, decision: Decision) -> str:
    return _name(pool, decision.pair.engine_id) if decision.pair is not None else ""


def _engine_cost(pool: LivePool, engine_id: str) -> tuple[PrefillCost, float]:
    """Return (cost model of the engine's prefills, the engine's speed).

    The model is the learned one if the policy uses it and it is better, else the policy's.
    """
    engine, policy = pool.engines.get(engine_id), pool.entry.policy
    if engine is None:
        return PrefillCost.of(policy.prefill_cost), 1.0
    learned = pool.entry.costs.get(engine.entry.kind) if policy.cost == "fitted" else None
    if learned is None or not learned.better:
        return PrefillCost.of(policy.prefill_cost), engine.entry.speed
    return learned.prefill, engine.entry.speed * learned.speeds.get(engine_id, 1.0)
