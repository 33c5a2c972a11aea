"""`GET /api/v1/explain/{id}`: why a request went where it went, and what came of it."""

from __future__ import annotations

import msgspec

from gateway.api.feedback_api import unknown_decision
from gateway.api.fleet_visibility import may_see_hits
from gateway.contracts.snapshot import ApiKeyEntry
from gateway.http.http_exchange import Exchange
from gateway.http.openai_error import ApiError
from gateway.peers.peer_calls import PeerCalls
from gateway.pool.recent_decisions import DecisionRecord, RecentDecisions
from routing.values import reasons
from routing.values.decision import Decision

PREFIX = "/api/v1/explain/"
_EXPLAIN = "explain"
_SHARED = (
    "Tenants share caches in this pool, so an explanation would reveal others' prompts; use a key with the scope "
    "manage, or isolate the tenants' caches."
)


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What really happened so far. Times in seconds since the request arrived; None: not (yet) known."""

    state: str
    """running, completed, failed, refused, cancelled or client_error."""
    error: str
    granted_after_s: float | None
    handed_over_after_s: float | None
    """When the prefill engine was done, where another one decodes."""
    first_token_after_s: float | None
    finished_after_s: float | None
    cached_tokens: int | None
    output_tokens: int | None
    on_time: bool | None


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """One decision in full. `decided_at` in unix seconds; candidates best first, the chosen one first of all."""

    decision: Decision
    decided_at: float
    engine_name: str
    reason_words: str
    queue_reason_words: str
    """Why it was dispatched before the queued requests beside it; empty where it did not wait."""
    decode_engine_name: str
    """Of `decision.pair`; empty where one engine does all."""
    pair_reason_words: str
    key_source: str
    ttft_slo_s: float
    attempts: tuple[str, ...]
    outcome: Outcome


class ExplainApi:
    """Looks decisions up; each tenant sees its own."""

    def __init__(self, recent: RecentDecisions, peers: PeerCalls) -> None:
        self._recent = recent
        self._peers = peers
        peers.serve(_EXPLAIN, self._explain)

    async def serve(self, exchange: Exchange, caller: ApiKeyEntry) -> None:
        """Serve one explanation, of the gateway that decided."""
        decision_id = exchange.path.removeprefix(PREFIX)
        await exchange.answer(200, await self._peers.at_owner(_EXPLAIN, decision_id, caller, decision_id))

    async def _explain(self, caller: ApiKeyEntry, decision_id: str, _body: bytes) -> bytes:
        record = self._recent.find(decision_id, caller.tenant_id)
        if record is None:
            raise unknown_decision()
        if not may_see_hits(caller, record.pool, salted=record.salted):
            raise ApiError(403, _SHARED, "shared_caches")
        return msgspec.json.encode(explanation(record))


def explanation(record: DecisionRecord) -> Explanation:
    """Return the record in the words of the API."""
    decision = record.decision
    engine = record.pool.engines.get(decision.engine_id)
    decoder = record.pool.engines.get(decision.pair.engine_id) if decision.pair is not None else None
    return Explanation(
        decision=decision,
        decided_at=record.decided_at,
        engine_name=engine.entry.name if engine is not None else "",
        reason_words=reasons.words(decision.reason),
        queue_reason_words=reasons.words(decision.queue_reason),
        decode_engine_name=decoder.entry.name if decoder is not None else "",
        pair_reason_words=reasons.words(decision.pair.reason) if decision.pair is not None else "",
        key_source=record.key_source,
        ttft_slo_s=record.ttft_slo_s,
        attempts=record.attempts,
        outcome=_outcome(record),
    )


def _outcome(record: DecisionRecord) -> Outcome:
    ttft_s = record.ttft_s
    finished_s = record.finished_s
    return Outcome(
        state=record.outcome or "running",
        error=record.error,
        granted_after_s=record.decision.queued_s if record.decision.engine_id else None,
        handed_over_after_s=None if record.handed_over_s is None else record.handed_over_s - record.arrived_s,
        first_token_after_s=ttft_s,
        finished_after_s=None if finished_s is None else finished_s - record.arrived_s,
        cached_tokens=record.cached_tokens,
        output_tokens=record.output_tokens,
        on_time=None if ttft_s is None else ttft_s <= record.ttft_slo_s,
    )
