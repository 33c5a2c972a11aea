"""Executes a decision for two SGLang engines, which get the request at the same time and connect to each other.

The decode engine waits for the KV, so its answer can begin at any time. It is relayed to the client after the prefill
engine has answered too. Until then, a failure of either ends both, and the caller can choose another pair.
"""

from __future__ import annotations

import asyncio
import secrets
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gateway.pools.pool.recent_decisions import DecisionRecord
from gateway.proxy.attempt import HANDOFF, Attempt, AttemptFailedError, AttemptFailure, PrefillEnd, RelaySettings
from gateway.proxy.engine_relay import EngineRelay, held_against
from gateway.proxy.engine_transport import EngineTransport
from gateway.proxy.forwarded_request import ForwardedRequest
from gateway.requests.formats.hit_figures import HIDDEN
from gateway.requests.lifecycle import RequestLifecycle
from gateway.server.http.http_exchange import Exchange

if TYPE_CHECKING:
    from gateway.pools.engines.live_engine import LiveEngine

MAX_PREFILL_ANSWER = 4 * 1024 * 1024
# As SGLang's own router draws them.
_ROOM_BITS = 63


class BootstrapHandoff:
    """Serves one paired attempt at a time. It has no state between attempts."""

    def __init__(
        self, lifecycle: RequestLifecycle, transport: EngineTransport, relay: EngineRelay, settings: RelaySettings
    ) -> None:
        self._lifecycle = lifecycle
        self._transport = transport
        self._relay = relay
        self._settings = settings

    async def relay(
        self,
        exchange: Exchange,
        record: DecisionRecord,
        engines: tuple[LiveEngine, LiveEngine],
        port: int,
        request: ForwardedRequest,
    ) -> AttemptFailure | None:
        """Serve the request on the prefill and decode engine, which connect at the prefill engine's `port`. None: it
        has ended.
        """
        first, second = engines
        room = secrets.randbits(_ROOM_BITS)
        both = request.bootstrap_legs(urlsplit(first.entry.url).hostname or "", port, room)
        prefilling = asyncio.create_task(self._prefill(record, first, second, both[0]), name="prefill leg")
        limits = self._settings.limits(record.pool, second.entry.engine_id, both[1])
        decode = Attempt(second, both[1], limits, partner=first, after=prefilling)
        relaying = asyncio.create_task(self._relay.relay(exchange, record, decode), name="decode leg")
        try:
            await asyncio.wait((prefilling, relaying), return_when=asyncio.FIRST_COMPLETED)
            if not prefilling.done() or prefilling.result().went_well:
                return await relaying
        except asyncio.CancelledError:
            # A client that has its whole answer leaves, and nothing is left to cancel.
            if relaying.cancelled() or not relaying.done():
                raise
            _not_cancelled()
            return relaying.result()
        finally:
            if running := [leg for leg in (prefilling, relaying) if not leg.done()]:
                for leg in running:
                    leg.cancel()
                await asyncio.gather(*running, return_exceptions=True)
        return await self._rejected(exchange, record, first, prefilling.result())

    async def _prefill(
        self, record: DecisionRecord, first: LiveEngine, second: LiveEngine, request: ForwardedRequest
    ) -> PrefillEnd:
        compute_s = record.decision.compute_s
        limits = self._settings.limits(record.pool, first.entry.engine_id, request, compute_s, leg=True)
        attempt = Attempt(first, request, limits, partner=second)
        try:
            async with self._transport.answer(attempt) as answer:
                body = await answer.whole(MAX_PREFILL_ANSWER, HANDOFF)
            shown = attempt.shown(body, answer.status) if answer.status >= 400 else b""
        except AttemptFailedError as error:
            return PrefillEnd(failure=held_against(record.pool, attempt, error.failure))
        first.breaker.record_success(monotonic())
        if answer.status >= 400:
            return PrefillEnd(rejection=(answer.status, shown, answer.headers))
        cached = answer.used.cached_tokens if answer.used is not None else None
        self._lifecycle.handed_over(record, monotonic(), cached)
        return PrefillEnd(client_cached_tokens=HIDDEN if request.cached_tokens == HIDDEN else cached)

    async def _rejected(
        self, exchange: Exchange, record: DecisionRecord, first: LiveEngine, end: PrefillEnd
    ) -> AttemptFailure | None:
        if end.rejection is None:
            return end.failure
        status, body, headers = end.rejection
        self._lifecycle.rejected_by_engine(record, first.entry.engine_id, status)
        await exchange.answer(status, body, headers)
        return None


def _not_cancelled() -> None:
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
