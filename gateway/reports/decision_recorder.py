"""Makes what the request log keeps of one ended request.

Of each its row of traffic; of some the decision: its terms, what was known then, what became of it, and regret.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from gateway.contracts.hit_sample import HitSample, mismatch_of
from gateway.contracts.key_source import COUNTED
from gateway.contracts.stored_decision import RUNNING, UNANSWERED, Known, StoredDecision, session_digest
from gateway.contracts.traffic_row import TrafficRow, trace_blocks, trace_head
from gateway.pool.recent_decisions import DecisionRecord
from gateway.pool.request_loads import saved_tokens, stored_load
from gateway.reports.decision_sampling import is_late
from gateway.reports.engine_cost import engine_cost
from gateway.reports.hindsight import Hindsight
from routing.policy.admission_document import OFF
from routing.values.decision import Candidate, Decision

if TYPE_CHECKING:
    from gateway.engines.live_engine import LiveEngine
    from gateway.pool.live_pool import LivePool

_TENANT = "tenant\0"


class DecisionRecorder:
    """Makes records. Mutable state: the hindsight; one thread at a time."""

    def __init__(self, fleet_secret: bytes) -> None:
        self._secret = fleet_secret
        self.hindsight = Hindsight()

    def recorded(
        self, record: DecisionRecord, share: float, snapshot_version: int, snapshot_age_s: float | None
    ) -> StoredDecision:
        """Return the record of a request that ended, or that nobody will tell the end of any more.

        What its hits came to is noted of its engine first.
        """
        engine = record.pool.engines.get(record.decision.engine_id)
        sample = hit_sample(record, engine)
        if engine is not None and sample is not None:
            engine.hits.take(sample)
        return self.stored(record, engine, sample, share, snapshot_version, snapshot_age_s)

    def stored(
        self,
        record: DecisionRecord,
        engine: LiveEngine | None,
        sample: HitSample | None,
        share: float,
        snapshot_version: int,
        snapshot_age_s: float | None,
    ) -> StoredDecision:
        """Return the record; `sample` compares its hits."""
        pool, decision = record.pool, record.decision
        known = tuple([_known(pool, each, decision, pool.engines.get(each.engine_id)) for each in decision.candidates])
        cost, speed = engine_cost(pool, decision.engine_id)
        admission = pool.entry.policy.admission
        regret = self.hindsight.regret_of(
            record,
            cost,
            speed,
            may_defer=admission.mode != OFF and admission.defer_s > 0,
            view_age_s=known[0].report_age_s if known else None,
        )
        pattern = engine.hits.verdict.cause if engine is not None else ""
        return StoredDecision(
            decision,
            _arrived_at(record),
            pool.entry.region,
            pool.entry.served_model,
            record.tenant_id,
            session_digest(self._secret, record.session_id),
            record.key_source,
            record.ttft_slo_s,
            record.attempts,
            record.outcome or UNANSWERED,
            record.error,
            share,
            is_late(record),
            max(0.0, decision.decided_s - record.arrived_s),
            decision.queued_s if decision.engine_id else None,
            _after(record, record.handed_over_s),
            record.ttft_s,
            _after(record, record.finished_s),
            believed_tokens(decision, pool.entry.block_tokens),
            record.cached_tokens,
            record.engine_prompt_tokens,
            record.output_tokens,
            pool.entry.block_tokens,
            mismatch_of(sample, pattern) if sample is not None else "",
            known,
            len(pool.router.view.roster.accepting),
            _decoder_name(pool, decision),
            cost,
            speed,
            snapshot_version,
            snapshot_age_s,
            record.slo_class,
            record.priority,
            regret,
            _after(record, record.asked_s) or 0.0,
            stored_load(record),
        )


def as_it_stands(record: DecisionRecord) -> StoredDecision:
    """Return the record of a request that may still be running; nothing is noted of its engine."""
    engine = record.pool.engines.get(record.decision.engine_id)
    stored = DecisionRecorder(b"").stored(record, engine, hit_sample(record, engine), 1.0, 0, None)
    # The session's digest needs the fleet's secret, and is worth nothing before the record can be searched.
    return msgspec.structs.replace(stored, session="", outcome=record.outcome or RUNNING)


def traffic_row(record: DecisionRecord, keys: Sequence[int], fleet_secret: bytes, *, late: bool) -> TrafficRow:
    """Return the shape of a request that ended, or whose end nobody will tell any more; `keys` are its prompt's."""
    entry, decision, first_token_s = record.pool.entry, record.decision, record.first_token_s
    return TrafficRow(
        _arrived_at(record),
        entry.pool_id,
        decision.prompt_tokens,
        record.output_tokens or 0,
        trace_blocks(keys, decision.prompt_tokens, entry.block_tokens),
        session_digest(fleet_secret, record.session_id),
        session_digest(fleet_secret, _TENANT + record.tenant_id),
        record.priority,
        record.outcome or UNANSWERED,
        late,
        None if first_token_s is None else first_token_s - record.arrived_s,
        _after(record, record.finished_s),
        record.cached_tokens,
        len(record.pool.router.view.roster.accepting),
        decision.policy_version,
        trace_head(keys, entry.block_tokens),
    )


def hit_sample(record: DecisionRecord, engine: LiveEngine | None) -> HitSample | None:
    """Return predicted and reported hit side by side.

    None where the engine reported none, or where it loaded and did not tell how much.
    """
    decision, reported = record.decision, record.cached_tokens
    if engine is None or reported is None or record.finished_s is None:
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


def _known(pool: LivePool, candidate: Candidate, decision: Decision, engine: LiveEngine | None) -> Known:
    if engine is None:
        return Known(candidate.engine_id, "")
    at_s = max(decision.decided_s, decision.migrated_s)
    trust = engine.index_trust(by_dispatches=pool.fed_by_dispatches(engine)).grade
    heard = engine.intake.heard.age_s(at_s) if engine.intake is not None else None
    return Known(candidate.engine_id, engine.entry.name, trust, engine.report_times.age_s(at_s), heard)


def _arrived_at(record: DecisionRecord) -> float:
    decision = record.decision
    return record.decided_at - (decision.queued_s if decision.engine_id else _after(record, record.finished_s) or 0.0)


def _after(record: DecisionRecord, moment_s: float | None) -> float | None:
    return None if moment_s is None else moment_s - record.arrived_s
