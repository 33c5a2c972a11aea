"""The rows of traffic of requests that ended, in one pass: this is done for every request."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.contracts.stored_decision import UNANSWERED, session_digest
from gateway.contracts.traffic_row import TrafficRow, trace_blocks, trace_head
from gateway.pool.live_pool import LivePool
from gateway.pool.recent_decisions import DecisionRecord

_TENANT = "tenant\0"
_WORKFLOW = "workflow\0"


def traffic_rows(ended: Sequence[DecisionRecord], late: Sequence[bool], fleet_secret: bytes) -> list[TrafficRow]:
    """Return the shapes of those whose keys are known; `late` tells which missed their objective."""
    rows: list[TrafficRow] = []
    known: LivePool | None = None
    tenant = digest = pool_id = ""
    block_tokens = engines = 0
    for record, missed in zip(ended, late, strict=True):
        keys = record.keys
        if keys is None or _left(record):
            continue
        pool, decision, arrived_s = record.pool, record.decision, record.arrived_s
        # Most have the pool and the tenant of the one before.
        if pool is not known:
            known, pool_id, block_tokens = pool, pool.entry.pool_id, pool.entry.block_tokens
            engines = len(pool.router.view.roster.accepting)
        if record.tenant_id != tenant or not digest:
            tenant = record.tenant_id
            digest = session_digest(fleet_secret, _TENANT + tenant)
        first_token_s, finished_s = record.first_token_s, record.finished_s
        total_s = None if finished_s is None else finished_s - arrived_s
        rows.append(
            TrafficRow(
                record.decided_at - (decision.queued_s if decision.engine_id else total_s or 0.0),
                pool_id,
                decision.prompt_tokens,
                record.output_tokens or 0,
                trace_blocks(keys, decision.prompt_tokens, block_tokens),
                session_digest(fleet_secret, record.session_id) if record.session_id else "",
                digest,
                record.priority,
                record.outcome or UNANSWERED,
                missed,
                None if first_token_s is None else first_token_s - arrived_s,
                total_s,
                record.cached_tokens,
                engines,
                decision.policy_version,
                trace_head(keys, block_tokens),
                record.agent,
                session_digest(fleet_secret, _WORKFLOW + record.workflow_id) if record.workflow_id else "",
                record.hop.origin if record.hop is not None and record.hop.origin != pool.entry.region else "",
            )
        )
    return rows


def _left(record: DecisionRecord) -> bool:
    """Return whether another region served the request, whose gateway sends its row."""
    return record.hop is not None and record.hop.destination != record.pool.entry.region
