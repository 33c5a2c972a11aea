"""Executes a decision for two engines: one computes the prompt, the other continues with its KV.

The legs run one after the other, so a disconnecting client cancels the running leg. Until the first byte is sent, a
failure of either leg is returned, and the caller can choose another pair.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING

from gateway.pools.engines.breaker import CONNECT
from gateway.pools.pool.kv_load import order_on
from gateway.pools.pool.recent_decisions import DecisionRecord
from gateway.proxy.attempt import HANDOFF, Attempt, AttemptFailedError, AttemptFailure, RelaySettings
from gateway.proxy.bootstrap_handoff import BootstrapHandoff
from gateway.proxy.engine_relay import EngineRelay, held_against
from gateway.proxy.engine_transport import EngineTransport
from gateway.proxy.forwarded_request import ForwardedRequest
from gateway.requests.formats.handoff_bodies import PrefillAnswer, read_prefill_answer
from gateway.requests.kv_load_report import take_from_params
from gateway.requests.lifecycle import RequestLifecycle
from gateway.server.http.http_exchange import ClientGoneError, Exchange
from routing.values.engine_pair import EnginePair

if TYPE_CHECKING:
    from gateway.pools.engines.live_engine import LiveEngine

MAX_PREFILL_ANSWER = 4 * 1024 * 1024

DONE, ALONE = "done", "alone"
PREFILL_FAILED, DECODE_FAILED, DECODE_LOST, CANCELLED = "prefill_failed", "decode_failed", "decode_lost", "cancelled"
"""Results of a hand-off, as counted. alone: the decode engine computed the prompt itself."""


class Handoff:
    """Serves one paired attempt at a time. It has no state between attempts."""

    def __init__(
        self, lifecycle: RequestLifecycle, transport: EngineTransport, relay: EngineRelay, settings: RelaySettings
    ) -> None:
        self._lifecycle = lifecycle
        self._transport = transport
        self._relay = relay
        self._settings = settings
        self._at_once = BootstrapHandoff(lifecycle, transport, relay, settings)

    async def relay(
        self, exchange: Exchange, record: DecisionRecord, pair: EnginePair, request: ForwardedRequest, *, alone: bool
    ) -> AttemptFailure | None:
        """Serve the request on its pair. None: it has ended, and the record states how.

        `alone` skips the prefill engine: the decode engine computes the prompt itself. The same happens if the request
        cannot be handed over.
        """
        alone = alone or request.endpoint.one_token is None
        # An engine may still hold what an earlier attempt under the same name has left there.
        request = request.named(f"{record.decision.decision_id}-{pair.pairing_id}")
        metrics, pool_id = self._lifecycle.metrics, record.decision.pool_id
        try:
            failure, outcome = await self._legs(exchange, record, pair, request, alone=alone)
        except (asyncio.CancelledError, ClientGoneError):
            metrics.handoffs.inc(pool_id, CANCELLED)
            raise
        metrics.handoffs.inc(pool_id, outcome)
        first_s, handed_s = record.first_token_s, record.handed_over_s
        if first_s is not None and handed_s is not None:
            metrics.handoff_seconds.observe(pool_id, value=first_s - handed_s)
        return failure

    async def _legs(
        self, exchange: Exchange, record: DecisionRecord, pair: EnginePair, request: ForwardedRequest, *, alone: bool
    ) -> tuple[AttemptFailure | None, str]:
        pool, engine_id = record.pool, record.decision.engine_id
        first, second = pool.engines.get(engine_id), pool.engines.get(pair.engine_id)
        if second is None:
            return AttemptFailure(CONNECT, pair.engine_id), DECODE_LOST
        port = await first.bootstrap_port() if first is not None else None
        if first is not None and port is not None and request.endpoint.one_token is not None:
            # SGLang's decode engines compute no prompt themselves.
            failure = await self._at_once.relay(exchange, record, (first, second), port, request)
            return failure, _outcome(record, failure, engine_id)
        if alone:
            return await self._alone(exchange, record, second, request), ALONE
        if first is None:
            return AttemptFailure(CONNECT, engine_id), PREFILL_FAILED
        answer = await self._prefill(exchange, record, first, second, request)
        if not isinstance(answer, PrefillAnswer):
            lost = answer is not None and answer.engine_id == pair.engine_id
            return answer, DECODE_LOST if lost else PREFILL_FAILED
        cached = answer.usage.cached_tokens if answer.usage is not None else None
        self._lifecycle.handed_over(record, monotonic(), cached)
        leg = self._decode_leg(record, pair, request, answer, cached)
        limits = self._settings.limits(record.pool, pair.engine_id, leg, leg=leg.streams)
        failure = await self._relay.relay(exchange, record, Attempt(second, leg, limits))
        return failure, DONE if failure is None and not record.error else DECODE_FAILED

    async def _alone(
        self, exchange: Exchange, record: DecisionRecord, second: LiveEngine, request: ForwardedRequest
    ) -> AttemptFailure | None:
        """Serve the request on its decode engine, which computes the prompt itself."""
        self._lifecycle.prefill_left_out(record)
        engine_id = second.entry.engine_id
        request = request.ordered(order_on(record, engine_id, request.order))
        limits = self._settings.limits(record.pool, engine_id, request, record.decision.compute_s)
        return await self._relay.relay(exchange, record, Attempt(second, request, limits))

    async def _prefill(
        self,
        exchange: Exchange,
        record: DecisionRecord,
        first: LiveEngine,
        second: LiveEngine,
        request: ForwardedRequest,
    ) -> PrefillAnswer | AttemptFailure | None:
        """Return the prefill leg's answer or failure. None: the engine rejected the request, and the client has the
        answer.
        """
        request = request.ordered(order_on(record, record.decision.engine_id, request.order))
        compute_s = record.decision.compute_s
        limits = self._settings.limits(record.pool, first.entry.engine_id, request, compute_s, leg=True)
        attempt = Attempt(first, request.prefill_leg(), limits, partner=second)
        try:
            async with self._transport.answer(attempt) as answer:
                body = await answer.whole(MAX_PREFILL_ANSWER, HANDOFF)
                first.breaker.record_success(monotonic())
                if answer.status >= 400:
                    self._lifecycle.rejected_by_engine(record, first.entry.engine_id, answer.status)
                    await exchange.answer(answer.status, attempt.shown(body, answer.status), answer.headers)
                    return None
                handed = self._handed_over(record, read_prefill_answer(body))
                return handed or AttemptFailure(HANDOFF, first.entry.engine_id)
        except AttemptFailedError as error:
            return held_against(record.pool, attempt, error.failure)

    def _decode_leg(
        self,
        record: DecisionRecord,
        pair: EnginePair,
        request: ForwardedRequest,
        answer: PrefillAnswer,
        cached: int | None,
    ) -> ForwardedRequest:
        """Return the leg for the decode engine. It loads nothing, because the KV is transferred from its partner."""
        order = request.order if record.pool.loads.has_node(pair.engine_id) else None
        return request.ordered(order).decode_leg(answer.kv_transfer_params, cached)

    def _handed_over(self, record: DecisionRecord, answer: PrefillAnswer | None) -> PrefillAnswer | None:
        """Return the answer without the KV connector's report, None if nothing was handed over."""
        if answer is None:
            return None
        params, loaded = take_from_params(answer.kv_transfer_params)
        self._lifecycle.loaded(record, loaded)
        return PrefillAnswer(params, answer.usage) if bytes(params) != b"{}" or loaded is None else None


def _outcome(record: DecisionRecord, failure: AttemptFailure | None, prefill_id: str) -> str:
    if failure is None:
        return DECODE_FAILED if record.error else DONE
    return PREFILL_FAILED if failure.engine_id == prefill_id else DECODE_FAILED
