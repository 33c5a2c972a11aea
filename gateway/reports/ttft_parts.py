"""The parts of one ended request's time to first token, and the pool's sums that count them."""

from __future__ import annotations

from gateway.contracts.affinity_sample import SplitMean
from gateway.pool.recent_decisions import DecisionRecord


def note_ttft(record: DecisionRecord) -> None:
    """Count a request that ended in its pool's sums; any thread may."""
    parts = split_of(record)
    if parts is not None and record.first_token_s is not None:
        record.pool.affinity.ttft.note(record.decision.engine_id, parts, record.first_token_s)


def split_of(record: DecisionRecord) -> SplitMean | None:
    """Return the parts of a request's TTFT; None where it had none, or spent time on an engine that failed it."""
    decision, ttft_s = record.decision, record.ttft_s
    if ttft_s is None or not decision.engine_id or len(record.attempts) > 1 + (decision.pair is not None):
        return None
    # A dispatch at once waited for no engine, but it may have waited for a gateway that was late itself.
    queue_s = min(max(0.0, decision.queued_s, decision.decided_s - record.arrived_s), ttft_s)
    rest_s = ttft_s - queue_s
    transfer_s = 0.0
    if decision.pair is not None and record.handed_over_s is not None and record.first_token_s is not None:
        transfer_s = min(max(0.0, record.first_token_s - record.handed_over_s), rest_s)
    return SplitMean(queue_s, transfer_s, rest_s - transfer_s)
