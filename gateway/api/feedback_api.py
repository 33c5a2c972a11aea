"""`POST /api/v1/requests/{id}/…` (VERBS): accept reports on a request that the caller forwards itself."""

from __future__ import annotations

from time import monotonic
from typing import Annotated

import msgspec
from msgspec import Meta

from gateway.access.authentication import FORWARD
from gateway.api.untracked_requests import ReportingKeys
from gateway.contracts.snapshot import ApiKeyEntry
from gateway.peers.links.peer_calls import PeerCalls
from gateway.pools.pool.recent_decisions import DecisionRecord
from gateway.pools.traffic.traffic_window import COMPLETED
from gateway.requests.lifecycle import RequestLifecycle
from gateway.server.http.http_exchange import Exchange
from gateway.server.http.json_body import decode_object, reject_nul, typed
from gateway.server.http.openai_error import ApiError
from gateway.usage.usage_ledger import UsageLedger

PREFIX = "/api/v1/requests/"
_FEEDBACK = "feedback"
VERBS = ("handed_over", "first_token", "complete", "fail", "cancel")
"""handed_over: the prefill leg has ended, with its cached tokens; the others concern the engine that answers. cancel:
the request ended for a reason unrelated to the engine, such as a disconnected client.
"""

MAX_BODY = 64 * 1024
"""Limit of a feedback body. It is decoded in one event loop step, which the edge's body limit would make too long."""

Count = Annotated[int, Meta(ge=0, le=100_000_000)]


class Completion(msgspec.Struct, kw_only=True):
    """The engine's usage report for its answer, in tokens. All fields are optional."""

    cached_tokens: Count | None = None
    output_tokens: Count | None = None
    prompt_tokens: Count | None = None
    """As the engine counted them. A count that differs from ours reveals another tokenizer or chat template."""


class FeedbackApi:
    """Accepts feedback. A repeated call gets the same answer and changes nothing."""

    def __init__(
        self, lifecycle: RequestLifecycle, reporting: ReportingKeys, peers: PeerCalls, usage: UsageLedger
    ) -> None:
        self._lifecycle = lifecycle
        self._reporting = reporting
        self._peers = peers
        self._usage = usage
        peers.serve(_FEEDBACK, self._take)

    async def serve(self, exchange: Exchange, caller: ApiKeyEntry) -> None:
        """Serve one feedback call at the gateway that made the decision."""
        body = await exchange.body_within(MAX_BODY)
        subject = exchange.path.removeprefix(PREFIX)
        decision_id, _, verb = subject.partition("/")
        answer = await self.report(caller, decision_id, verb, body)
        exchange.decision_id = decision_id
        await exchange.answer(200, answer)

    async def report(self, caller: ApiKeyEntry, decision_id: str, verb: str, body: bytes = b"") -> bytes:
        """Apply one report at the gateway that made the decision; return the answer's body."""
        if verb == "complete" and decision_id in self._usage.orphans:
            return self._complete_orphan(caller, decision_id, body)
        return await self._peers.at_owner(_FEEDBACK, decision_id, caller, f"{decision_id}/{verb}", body)

    async def _take(self, caller: ApiKeyEntry, subject: str, body: bytes) -> bytes:
        """Apply feedback to a decision of this gateway; return the answer's body."""
        now = monotonic()
        decision_id, _, verb = subject.partition("/")
        if verb not in VERBS:
            raise ApiError(404, f"Unknown call; use {', '.join(VERBS)}.", "not_found")
        record = self._lifecycle.recent.get(decision_id)
        if record is None or caller.tenant_id not in (record.tenant_id, record.reporting_tenant):
            raise unknown_decision()
        self._reporting.reported(caller.key_id, now)
        if record.proxied or (record.reporting_tenant and FORWARD not in caller.scopes):
            # What the gateway or its trusted proxy observes takes precedence over the caller's word.
            pass
        elif verb == "handed_over":
            self._lifecycle.handed_over(record, now, self._report(record, body).cached_tokens)
        elif verb == "first_token":
            self._lifecycle.first_token(record, now)
        elif verb == "complete":
            self._complete(record, body, now)
        elif verb == "cancel":
            self._lifecycle.cancelled(record, now)
        else:
            self._lifecycle.failed(record, now, "reported_by_caller")
        return msgspec.json.encode({"decision_id": decision_id, "outcome": record.outcome})

    def _complete(self, record: DecisionRecord, body: bytes, now: float) -> None:
        report = self._report(record, body)
        self._lifecycle.completed(
            record,
            now,
            cached_tokens=report.cached_tokens,
            output_tokens=report.output_tokens,
            prompt_tokens=report.prompt_tokens,
        )

    def _complete_orphan(self, caller: ApiKeyEntry, decision_id: str, body: bytes) -> bytes:
        """Count the usage of a request that an earlier process of this gateway decided."""
        report = _completion(body)
        figures = (report.prompt_tokens or 0, report.cached_tokens or 0, report.output_tokens or 0)
        if not self._usage.report_orphan(decision_id, caller.tenant_id, *figures):
            raise unknown_decision()
        return msgspec.json.encode({"decision_id": decision_id, "outcome": COMPLETED})

    def _report(self, record: DecisionRecord, body: bytes) -> Completion:
        report = _completion(body)
        cached = report.cached_tokens
        if cached is not None:
            report.cached_tokens = min(cached, record.decision.prompt_tokens)
        return report


def _completion(body: bytes) -> Completion:
    reject_nul(body)
    return typed(decode_object(body), Completion) if body else Completion()


def unknown_decision() -> ApiError:
    """Return the 404 for a missing decision. A decision of another caller gets the same answer."""
    return ApiError(
        404, "You have no recent decision with this id; the gateway keeps decisions only for a while.", "not_found"
    )
