"""`GET /api/v1/explain/{id}`: return why a request went to its engine, and how it ended."""

from __future__ import annotations

import msgspec

from gateway.api.feedback_api import unknown_decision
from gateway.api.fleet_visibility import may_see_load
from gateway.contracts.explanation import explanation
from gateway.contracts.snapshot import ApiKeyEntry
from gateway.peers.links.peer_calls import PeerCalls
from gateway.pools.pool.recent_decisions import RecentDecisions
from gateway.reports.decision_recorder import current_decision
from gateway.server.http.http_exchange import Exchange
from gateway.server.http.openai_error import ApiError

PREFIX = "/api/v1/explain/"
_EXPLAIN = "explain"
_SHARED = (
    "Tenants share caches in this pool, so an explanation would reveal others' prompts; use a key with the scope "
    "manage, or isolate the tenants' caches."
)


class ExplainApi:
    """Returns decisions by id; each tenant sees only its own."""

    def __init__(self, recent: RecentDecisions, peers: PeerCalls) -> None:
        self._recent = recent
        self._peers = peers
        peers.serve(_EXPLAIN, self._explain)

    async def serve(self, exchange: Exchange, caller: ApiKeyEntry) -> None:
        """Serve one explanation from the gateway that made the decision."""
        decision_id = exchange.path.removeprefix(PREFIX)
        await exchange.answer(200, await self._peers.at_owner(_EXPLAIN, decision_id, caller, decision_id))

    async def _explain(self, caller: ApiKeyEntry, decision_id: str, _body: bytes) -> bytes:
        record = self._recent.find(decision_id, caller.tenant_id)
        if record is None:
            raise unknown_decision()
        if not may_see_load(caller, record.pool):
            raise ApiError(403, _SHARED, "shared_caches")
        names = {engine_id: engine.entry.name for engine_id, engine in record.pool.engines.items()}
        return msgspec.json.encode(explanation(current_decision(record), names))
