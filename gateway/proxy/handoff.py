"""Carries out a decision for two engines: one computes the prompt, the other goes on with its KV.

The legs follow each other, so whichever runs is the one that a leaving client cancels. Until the first byte
has gone out, a failure of either leg is returned, and the caller may pair the request anew.
"""

from __future__ import annotations

import asyncio
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

import aiohttp
import msgspec

from gateway.engines.breaker import CONNECT, HTTP_5XX, NO_PROGRESS, TIMEOUT
from gateway.engines.engine_rejection import REJECTIONS, passed_headers
from gateway.http.http_exchange import ClientGoneError, Exchange
from gateway.pool.recent_decisions import DecisionRecord
from gateway.proxy.engine_relay import BROKEN, HANDOFF, AttemptFailure, EngineRelay, RelaySettings, is_evidence
from gateway.proxy.forwarded_request import ForwardedRequest
from gateway.proxy.progress_guard import EngineSilentError, ProgressGuard
from gateway.requests.handoff_bodies import PrefillAnswer, read_prefill_answer
from gateway.requests.lifecycle import RequestLifecycle
from routing.values.engine_pair import EnginePair
from routing.values.observation import FirstToken, HandedOver

if TYPE_CHECKING:
    from gateway.engines.live_engine import LiveEngine
    from gateway.pool.live_pool import LivePool

MAX_PREFILL_ANSWER = 4 * 1024 * 1024
_ASSUMED_DECODE_MARGIN_S = 0.05

DONE, ALONE = "done", "alone"
PREFILL_FAILED, DECODE_FAILED, DECODE_LOST, CANCELLED = "prefill_failed", "decode_failed", "decode_lost", "cancelled"
"""How a hand-off ended, as it is counted; alone: the decode engine computed the prompt itself."""


class Handoff:
    """One paired attempt after the other; keeps no state between them."""

    def __init__(self, lifecycle: RequestLifecycle, relay: EngineRelay, settings: RelaySettings) -> None:
        self._lifecycle = lifecycle
        self._relay = relay
        self._settings = settings

    async def attempt(
        self,
        exchange: Exchange,
        pool: LivePool,
        record: DecisionRecord,
        pair: EnginePair,
        request: ForwardedRequest,
        *,
        alone: bool,
    ) -> AttemptFailure | None:
        """Serve the request on its pair; None: it has had its end, and the record says which.

        `alone` leaves the prefill engine out: the decode engine computes the prompt itself.
        """
        # An engine may still hold what an earlier attempt under the same name has left there.
        request = request.named(f"{record.decision.decision_id}-{pair.pairing_id}")
        try:
            failure, outcome = await self._legs(exchange, pool, record, pair, request, alone=alone)
        except (asyncio.CancelledError, ClientGoneError):
            self._count(pool, CANCELLED)
            raise
        self._count(pool, outcome)
        first_s, handed_s = record.first_token_s, record.handed_over_s
        if first_s is not None and handed_s is not None:
            self._lifecycle.metrics.handoff_seconds.observe(pool.entry.pool_id, value=first_s - handed_s)
        return failure

    async def _legs(
        self,
        exchange: Exchange,
        pool: LivePool,
        record: DecisionRecord,
        pair: EnginePair,
        request: ForwardedRequest,
        *,
        alone: bool,
    ) -> tuple[AttemptFailure | None, str]:
        first, second = pool.engines.get(record.decision.engine_id), pool.engines.get(pair.engine_id)
        if second is None:
            return AttemptFailure(CONNECT, engine_id=pair.engine_id), DECODE_LOST
        if alone:
            # No prefill runs on the first engine: it is free, and there is nothing to learn from it.
            pool.costs.dropped(record.decision.decision_id)
            pool.progress.moved(record.decision, monotonic(), prefilled=False)
            pool.observe(HandedOver(record.decision.decision_id))
            return await self._decode(exchange, pool, record, second, request, self._settings.first_byte_s), ALONE
        if first is None:
            return AttemptFailure(CONNECT, engine_id=record.decision.engine_id), PREFILL_FAILED
        answer = await self._prefill(exchange, first, second, record, request)
        if isinstance(answer, AttemptFailure):
            return answer, DECODE_LOST if answer.engine_id == pair.engine_id else PREFILL_FAILED
        if answer is None:
            return None, PREFILL_FAILED
        cached = answer.usage.cached_tokens if answer.usage is not None else None
        self._lifecycle.handed_over(record, monotonic(), cached)
        leg = request.decode_leg(answer.kv_transfer_params, cached)
        failure = await self._decode(exchange, pool, record, second, leg, self._settings.decode_leg_s)
        return failure, DONE if failure is None and not record.error else DECODE_FAILED

    async def _prefill(
        self,
        exchange: Exchange,
        first: LiveEngine,
        second: LiveEngine,
        record: DecisionRecord,
        request: ForwardedRequest,
    ) -> PrefillAnswer | AttemptFailure | None:
        """Return the prefill leg's answer or failure; None: the engine rejected the request, and the client knows."""
        settings, engine_id, begun_s = self._settings, first.entry.engine_id, monotonic()
        watch = _EitherLost(first, second)
        try:
            with ProgressGuard(watch, first_s=settings.prefill_leg_s, idle_s=settings.idle_s) as guard:
                async with first.session.post(
                    first.entry.url.rstrip("/") + request.path,
                    data=request.prefill_payload(),
                    headers=first.authorized(request.headers),
                    allow_redirects=False,
                    timeout=aiohttp.ClientTimeout(total=None, sock_connect=settings.connect_s),
                ) as response:
                    return await self._read(exchange, first, record, response, guard)
        except BROKEN as error:
            if second.breaker.lost and not first.breaker.lost:
                return AttemptFailure(CONNECT, engine_id=second.entry.engine_id)
            silent = isinstance(error, EngineSilentError) and not first.lost
            if silent and watch.stuck:
                return AttemptFailure(NO_PROGRESS, engine_id=engine_id if first.stuck else second.entry.engine_id)
            kind = TIMEOUT if silent else CONNECT
            if is_evidence(error, first, begun_s):
                first.breaker.record_failure(kind, monotonic())
            return AttemptFailure(kind, engine_id=engine_id)

    async def _read(
        self,
        exchange: Exchange,
        first: LiveEngine,
        record: DecisionRecord,
        response: aiohttp.ClientResponse,
        guard: ProgressGuard,
    ) -> PrefillAnswer | AttemptFailure | None:
        engine_id = first.entry.engine_id
        if not 200 <= response.status < 300 and not 400 <= response.status < 500:
            response.close()
            first.breaker.record_failure(HTTP_5XX, monotonic())
            return AttemptFailure(HTTP_5XX, response.status, engine_id)
        if response.status in REJECTIONS:
            return await self._relay.rejected(first, record, response)
        body = bytearray()
        async for chunk in response.content.iter_any():
            guard.progress()
            body += chunk
            if len(body) > MAX_PREFILL_ANSWER:
                response.close()
                return AttemptFailure(HANDOFF, engine_id=engine_id)
        first.breaker.record_success(monotonic())
        if response.status >= 400:
            record.pool.progress.engine(engine_id).rejected(monotonic())
            self._lifecycle.client_error(record, monotonic(), response.status)
            await exchange.answer(response.status, bytes(body), passed_headers(response))
            return None
        return read_prefill_answer(bytes(body)) or AttemptFailure(HANDOFF, engine_id=engine_id)

    async def _decode(
        self,
        exchange: Exchange,
        pool: LivePool,
        record: DecisionRecord,
        second: LiveEngine,
        request: ForwardedRequest,
        first_byte_s: float,
    ) -> AttemptFailure | None:
        assumed: asyncio.TimerHandle | None = None
        if not request.streams:
            # A whole answer shows no first token; without one its memory would count as still to come for long.
            note = partial(pool.observe, FirstToken(record.decision.decision_id))
            assumed = asyncio.get_running_loop().call_later(_ASSUMED_DECODE_MARGIN_S, note)
        try:
            failure = await self._relay.attempt(exchange, second, record, request, first_byte_s=first_byte_s)
        finally:
            if assumed is not None:
                assumed.cancel()
        return None if failure is None else msgspec.structs.replace(failure, engine_id=second.entry.engine_id)

    def _count(self, pool: LivePool, outcome: str) -> None:
        self._lifecycle.metrics.handoffs.inc(pool.entry.pool_id, outcome)


class _EitherLost:
    """Lost when either engine is: a prefill whose decode engine died need not be waited for."""

    def __init__(self, first: LiveEngine, second: LiveEngine) -> None:
        self._engines = first, second

    @property
    def lost(self) -> bool:
        return any(each.lost for each in self._engines)

    @property
    def stuck(self) -> bool:
        return any(each.stuck for each in self._engines)
