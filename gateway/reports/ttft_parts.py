"""The parts of one ended request's time to first token."""

from __future__ import annotations

from gateway.pool.recent_decisions import DecisionRecord
from gateway.pool.ttft_split import Noted


def split_of(record: DecisionRecord) -> Noted | None:
    """Return the parts of a request's TTFT; None where it had none, or spent time on an engine that failed it."""
    decision, first_token_s, arrived_s = record.decision, record.first_token_s, record.arrived_s
    pair = decision.pair
    if first_token_s is None or not decision.engine_id or len(record.attempts) > (1 if pair is None else 2):
        return None
    ttft_s = first_token_s - arrived_s
    # A dispatch at once waited for no engine, but it may have waited for a gateway that was late itself.
    queue_s = decision.decided_s - arrived_s
    queue_s = max(queue_s, decision.queued_s)
    if queue_s > ttft_s:
        queue_s = ttft_s
    elif queue_s < 0.0:
        queue_s = 0.0
    rest_s = ttft_s - queue_s
    if pair is None or record.handed_over_s is None:
        return decision.engine_id, queue_s, 0.0, rest_s, first_token_s
    transfer_s = min(max(0.0, first_token_s - record.handed_over_s), rest_s)
    return decision.engine_id, queue_s, transfer_s, rest_s - transfer_s, first_token_s
