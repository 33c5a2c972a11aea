"""Makes the record of one ended decision: its terms, what was known then, what became of it, and regret."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.contracts.hit_sample import HitSample, mismatch_of
from gateway.contracts.stored_decision import UNANSWERED, Known, StoredDecision, session_digest
from gateway.pool.engine_cost import engine_cost
from gateway.pool.recent_decisions import DecisionRecord
from gateway.reports.decision_sampling import is_late
from gateway.reports.hindsight import Hindsight
from gateway.requests.prompt_keys import REMEMBERED, TOKENIZED, TOKENS
from routing.policy.admission_document import OFF
from routing.values.decision import Candidate, Decision

if TYPE_CHECKING:
    from gateway.engines.live_engine import LiveEngine
    from gateway.pool.live_pool import LivePool

_COUNTED = (TOKENS, TOKENIZED, REMEMBERED)
"""Key sources under which the prompt's length is counted, not guessed."""


class DecisionRecorder:
    """Makes records. Mutable state: the hindsight; one thread at a time."""

    def __init__(self, fleet_secret: bytes) -> None:
        self._secret = fleet_secret
        self.hindsight = Hindsight()

    def stored(
        self, record: DecisionRecord, share: float, snapshot_version: int, snapshot_age_s: float | None
    ) -> StoredDecision:
        """Return the record of a request that ended, or that nobody will tell the end of any more."""
        pool, decision = record.pool, record.decision
        engine = pool.engines.get(decision.engine_id)
        known = tuple([_known(pool, each, decision, pool.engines.get(each.engine_id)) for each in decision.candidates])
        sample = hit_sample(record, engine)
        cost, speed = engine_cost(pool, decision.engine_id)
        admission = pool.entry.policy.admission
        regret = self.hindsight.regret_of(
            record,
            cost,
            speed,
            may_park=admission.mode != OFF and admission.defer_s > 0,
            view_age_s=known[0].report_age_s if known else None,
        )
        decoder = pool.engines.get(decision.pair.engine_id) if decision.pair is not None else None
        pattern = engine.hits.verdict.cause if engine is not None else ""
        return StoredDecision(
            decision,
            record.decided_at - (decision.queued_s if decision.engine_id else _after(record, record.finished_s) or 0.0),
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
            len(pool.router.view.accepting),
            decoder.entry.name if decoder is not None else "",
            cost,
            speed,
            snapshot_version,
            snapshot_age_s,
            record.slo_class,
            record.priority,
            regret,
            _after(record, record.asked_s) or 0.0,
        )


def hit_sample(record: DecisionRecord, engine: LiveEngine | None) -> HitSample | None:
    """Return predicted and reported hit side by side; None where the engine reported none."""
    decision, reported = record.decision, record.cached_tokens
    if engine is None or reported is None or record.finished_s is None:
        return None
    watch, block_tokens = engine.hits, record.pool.entry.block_tokens
    counted = record.key_source in _COUNTED
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
    """Return the prompt's tokens that the engine held by the index when it was granted, whatever the trust."""
    if not decision.candidates:
        return decision.hit_tokens
    chosen = decision.candidates[0]
    held = min(chosen.blocks * block_tokens, decision.prompt_tokens)
    if chosen.hit_tokens <= 0 or chosen.hit_tokens == decision.hit_tokens:
        return held if chosen.blocks else decision.hit_tokens
    # Grants estimate anew; the trust in between is that of the choice.
    return min(decision.prompt_tokens, round(decision.hit_tokens * held / chosen.hit_tokens))


def _known(pool: LivePool, candidate: Candidate, decision: Decision, engine: LiveEngine | None) -> Known:
    if engine is None:
        return Known(candidate.engine_id, "")
    at_s = max(decision.decided_s, decision.migrated_s)
    trust = engine.index_trust(by_dispatches=pool.fed_by_dispatches(engine)).grade
    heard = engine.intake.heard.age_s(at_s) if engine.intake is not None else None
    return Known(candidate.engine_id, engine.entry.name, trust, engine.report_times.age_s(at_s), heard)


def _after(record: DecisionRecord, moment_s: float | None) -> float | None:
    return None if moment_s is None else moment_s - record.arrived_s
