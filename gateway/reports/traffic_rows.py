"""The row of traffic of a request that ended, packed: this is done for every request."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from gateway.contracts.request_batch import pack_row
from gateway.contracts.stored_decision import UNANSWERED, session_digest
from gateway.contracts.traffic_row import BLOCK_TOKENS, trace_blocks, trace_head
from gateway.pool.recent_decisions import DecisionRecord

_TENANT = "tenant\0"
_WORKFLOW = "workflow\0"


def traffic_row(record: DecisionRecord, keys: Sequence[int], fleet_secret: bytes) -> bytes:
    """Return the packed shape of a request with these block keys."""
    pool, decision, arrived_s = record.pool, record.decision, record.arrived_s
    entry, first_token_s, finished_s = pool.entry, record.first_token_s, record.finished_s
    block_tokens, prompt_tokens = entry.block_tokens, decision.prompt_tokens
    # In a pool with blocks of that size the names are the keys.
    as_they_are = block_tokens == BLOCK_TOKENS and (len(keys) - 1) * BLOCK_TOKENS < prompt_tokens
    # By position, in the order of the fields of TrafficRow, of which it has the bytes.
    return pack_row(
        (
            arrived_at(record),
            entry.pool_id,
            prompt_tokens,
            record.output_tokens,
            keys if as_they_are else trace_blocks(keys, prompt_tokens, block_tokens),
            session_digest(fleet_secret, record.session_id) if record.session_id else "",
            tenant_digest(fleet_secret, record.tenant_id),
            record.priority,
            record.outcome or UNANSWERED,
            record.late,
            None if first_token_s is None else first_token_s - arrived_s,
            None if finished_s is None else finished_s - arrived_s,
            record.cached_tokens,
            len(pool.router.view.roster.accepting),
            decision.policy_version,
            trace_head(keys, block_tokens) if block_tokens < BLOCK_TOKENS else (),
            record.agent,
            workflow_digest(fleet_secret, record.workflow_id) if record.workflow_id else "",
            origin(record) if record.hop is not None else "",
        )
    )


def arrived_at(record: DecisionRecord) -> float:
    """Return when the request arrived, in unix seconds."""
    decision, finished_s = record.decision, record.finished_s
    if decision.engine_id:
        return record.decided_at - decision.queued_s
    return record.decided_at - (0.0 if finished_s is None else finished_s - record.arrived_s)


@lru_cache(maxsize=16_384)
def tenant_digest(fleet_secret: bytes, tenant_id: str) -> str:
    """Return by what a tenant is known in a row."""
    return session_digest(fleet_secret, _TENANT + tenant_id)


def workflow_digest(fleet_secret: bytes, workflow_id: str) -> str:
    """Return by what a workflow is known in a row; empty: the request belongs to none."""
    return session_digest(fleet_secret, _WORKFLOW + workflow_id) if workflow_id else ""


def origin(record: DecisionRecord) -> str:
    """Return the region of the request's first contact where that is not the pool's."""
    hop = record.hop
    return hop.origin if hop is not None and hop.origin != record.pool.entry.region else ""


def left(record: DecisionRecord) -> bool:
    """Return whether another region served the request, whose gateway sends its row."""
    return record.hop is not None and record.hop.destination != record.pool.entry.region
