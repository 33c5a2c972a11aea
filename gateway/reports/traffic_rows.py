"""Packs the traffic row of an ended request. It runs for every request."""

from __future__ import annotations

from functools import lru_cache

from gateway.contracts.request_batch import pack_row
from gateway.contracts.stored_decision import UNANSWERED, session_digest
from gateway.contracts.traffic_row import BLOCK_TOKENS, trace_blocks, trace_head
from gateway.pools.pool.recent_decisions import DecisionRecord

_TENANT = "tenant\0"
"""Precedes a tenant's id in its digest, which therefore differs from that of a session."""
_WORKFLOW = "workflow\0"

Row = tuple[
    float, str, int, int | None, tuple[int, ...], str, str, int, str, bool, float | None, float | None, int | None, int,
    int, tuple[int, ...], str, str, str,
]  # fmt: skip
"""The values of a TrafficRow, in the order of its fields."""


def traffic_row(record: DecisionRecord, keys: tuple[int, ...], digest_key: bytes) -> bytes:
    """Return the packed row of a request with these block keys."""
    block_tokens, prompt_tokens = record.pool.entry.block_tokens, record.decision.prompt_tokens
    # In a pool with blocks of that size the names are the keys.
    if block_tokens == BLOCK_TOKENS and (len(keys) - 1) * BLOCK_TOKENS < prompt_tokens:
        return pack_row(row_values(record, digest_key, keys))
    blocks, head = trace_blocks(keys, prompt_tokens, block_tokens), trace_head(keys, block_tokens)
    return pack_row(row_values(record, digest_key, blocks, head))


def row_values(
    record: DecisionRecord, digest_key: bytes, blocks: tuple[int, ...] = (), head: tuple[int, ...] = ()
) -> Row:
    """Return the row's values. It runs for every request, so it creates no objects and calls almost no functions."""
    pool, decision, arrived_s = record.pool, record.decision, record.arrived_s
    first_token_s, finished_s = record.first_token_s, record.finished_s
    session_id, workflow_id = record.session_id, record.workflow_id
    took_s = None if finished_s is None else finished_s - arrived_s
    return (
        record.arrived_at,
        pool.entry.pool_id,
        decision.prompt_tokens,
        record.output_tokens,
        blocks,
        # No id, no digest: that of an empty text would make one session of all these requests.
        session_id and session_digest(digest_key, session_id),
        tenant_digest(digest_key, record.tenant_id),
        record.priority,
        record.outcome or UNANSWERED,
        record.late,
        None if first_token_s is None else first_token_s - arrived_s,
        took_s,
        record.cached_tokens,
        len(pool.router.view.roster.accepting),
        decision.policy_version,
        head,
        record.agent,
        workflow_id and session_digest(digest_key, _WORKFLOW + workflow_id),
        "" if record.hop is None else _origin(record),
    )


@lru_cache(maxsize=16_384)
def tenant_digest(digest_key: bytes, tenant_id: str) -> str:
    """Return the name of a tenant in records."""
    return session_digest(digest_key, _TENANT + tenant_id)


def _origin(record: DecisionRecord) -> str:
    hop = record.hop
    return hop.origin if hop is not None and hop.origin != record.pool.entry.region else ""


def left(record: DecisionRecord) -> bool:
    """Return whether another region served the request, so that its gateway sends the row."""
    return record.hop is not None and record.hop.destination != record.pool.entry.region
