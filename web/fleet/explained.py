"""A decision in the words of the gateway's explain API, made from its record."""

from __future__ import annotations

from controlplane.fleet.models.engine import Engine
from controlplane.request_log.recent_decisions import decided_at
from gateway.api.explain_api import Explanation, Outcome
from gateway.contracts.stored_decision import StoredDecision
from routing.values import reasons


def explained(record: StoredDecision) -> Explanation:
    """Return the record as the drawer tells it; an engine that was removed is known by its id."""
    decision, pair = record.decision, record.decision.pair
    ids = [decision.engine_id, pair.engine_id if pair is not None else ""]
    names = dict(Engine.objects.filter(engine_id__in=ids).values_list("engine_id", "name"))
    return Explanation(
        decision=decision,
        decided_at=decided_at(record),
        engine_name=names.get(ids[0], ids[0]),
        reason_words=reasons.words(decision.reason),
        queue_reason_words=reasons.words(decision.queue_reason),
        decode_engine_name=names.get(ids[1], ids[1]),
        pair_reason_words=reasons.words(pair.reason) if pair is not None else "",
        key_source=record.key_source,
        ttft_slo_s=record.ttft_slo_s,
        attempts=record.attempts,
        outcome=_outcome(record),
    )


def _outcome(record: StoredDecision) -> Outcome:
    ttft_s = record.first_token_after_s
    return Outcome(
        state=record.outcome,
        error=record.error,
        granted_after_s=record.granted_after_s,
        handed_over_after_s=record.handed_over_after_s,
        first_token_after_s=ttft_s,
        finished_after_s=record.finished_after_s,
        cached_tokens=record.cached_tokens,
        output_tokens=record.output_tokens,
        on_time=None if ttft_s is None else ttft_s <= record.ttft_slo_s,
    )
