"""OpenTelemetry spans of requests that others send to engines: from their decision to the end that is reported.

Their engines continue the trace of the client or of the proxy that sends the request.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from typing_extensions import override

from gateway.pools.pool.request_listener import RequestListener
from gateway.requests.caller_facts import API, DecisionCaller
from gateway.requests.formats.endpoints import BY_PATH, CHAT
from gateway.server.http.engine_paths import ROUTE
from gateway.server.http.request_head import RequestHead

if TYPE_CHECKING:
    from gateway.pools.pool.live_pool import LivePool
    from gateway.pools.pool.recent_decisions import DecisionRecord
    from gateway.proxy.request_spans import RequestSpans, Tracing
    from routing.values.inference_request import InferenceRequest

MAX_OPEN = 10_000
"""Limit of requests whose end was not reported yet. Beyond it, the spans of the oldest end without their outcome."""


class _Reported(NamedTuple):
    """What the gateway knows of the exchange between the client and the proxy."""

    head: RequestHead
    decision_id: str
    status: int = 0


class ReportedSpans(RequestListener):
    """Traces these requests. Mutable: the open spans by decision id."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing
        self._open: OrderedDict[str, RequestSpans] = OrderedDict()

    def begin(self, decision_id: str, caller: DecisionCaller, pool: LivePool, arrived_s: float) -> None:
        """Begin the spans of one request."""
        named = caller.facts.client_request_id
        headers = [*caller.trace.items(), *([(b"x-request-id", named.encode())] if named else ())]
        path = caller.original_path
        endpoint = BY_PATH[path] if path in BY_PATH else msgspec.structs.replace(BY_PATH[CHAT], path=ROUTE)
        exchange = _Reported(RequestHead(headers), decision_id)
        spans = self._open[decision_id] = self._tracing.request(exchange, endpoint, pool, arrived_s)
        spans.came_by(caller.facts.door or API)
        if len(self._open) > MAX_OPEN:
            self.abandon(next(iter(self._open)))

    def abandon(self, decision_id: str) -> None:
        """End the spans of a request without an outcome. A second call changes nothing."""
        spans = self._open.pop(decision_id, None)
        if spans is not None:
            spans.ended(None)

    @override
    def dispatched(self, record: DecisionRecord, request: InferenceRequest, took_s: float, again: bool) -> None:
        spans = self._open.get(record.decision.decision_id)
        if spans is not None:
            spans.decided(record)

    @override
    def first_token(self, record: DecisionRecord, now: float) -> None:
        spans = self._open.get(record.decision.decision_id)
        if spans is not None:
            spans.first_token(now)

    @override
    def ended(self, record: DecisionRecord, now: float) -> None:
        spans = self._open.pop(record.decision.decision_id, None)
        if spans is not None:
            spans.ended(record)
