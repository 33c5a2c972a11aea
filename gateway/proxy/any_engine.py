"""Relays requests that compute no tokens (tokenizing, counting): any engine answers them, and nothing is reserved."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gateway.proxy.attempt import Attempt, AttemptFailedError
from gateway.proxy.engine_relay import held_against
from gateway.proxy.engine_transport import EngineTransport
from gateway.proxy.forwarded_request import ForwardedRequest
from gateway.proxy.progress_guard import AnswerLimits
from gateway.requests.rejections import rejection
from gateway.server.http.http_exchange import Exchange
from gateway.server.process.drain import Drain, ShuttingDownError
from routing.values.decision import Rejected

if TYPE_CHECKING:
    from gateway.pools.engines.live_engine import LiveEngine
    from gateway.pools.pool.live_pool import LivePool

MAX_ENGINES_ASKED = 3
MAX_ANSWER_BYTES = 64 * 1024 * 1024
LIMITS = AnswerLimits(whole_s=30.0)
"""Time limits: any engine can answer, and nothing is generated twice."""


class AnyEngineRelay:
    """Relays such requests. Mutable: the turn, so that the next request begins with another engine."""

    def __init__(self, transport: EngineTransport, drain: Drain) -> None:
        self._transport = transport
        self._drain = drain
        self._turn = 0

    async def serve(self, exchange: Exchange, pool: LivePool, request: ForwardedRequest, model: str) -> None:
        """Relay the first answer of an engine that serves the model; raise ApiError if none answers."""
        try:
            with self._drain.relay():
                await self._serve(exchange, pool, request, model)
        except asyncio.CancelledError:
            if self._drain.cut:
                raise ShuttingDownError from None
            raise

    async def _serve(self, exchange: Exchange, pool: LivePool, request: ForwardedRequest, model: str) -> None:
        failure = None
        for engine in self._engines(pool, model):
            attempt = Attempt(engine, request, LIMITS)
            try:
                async with self._transport.answer(attempt) as answer:
                    body = attempt.shown(await answer.whole(MAX_ANSWER_BYTES), answer.status)
            except AttemptFailedError as error:
                failure = error.failure
                if failure.rejection is not None:
                    rejected = failure.rejection
                    await exchange.answer(rejected.status, rejected.body, rejected.headers)
                    return
                held_against(pool, attempt, failure)
                continue
            await exchange.answer(answer.status, body, answer.headers)
            return
        raise failure.as_error() if failure is not None else rejection(Rejected("", "no_engine", 1.0))

    def _engines(self, pool: LivePool, model: str) -> list[LiveEngine]:
        """Return the engines to ask, in turns, among those that accept work."""
        able = pool.accepting if model == pool.entry.served_model else pool.accepting & pool.names.engines(model)
        engines = [pool.engines[name] for name in sorted(able) if name in pool.engines]
        self._turn += 1
        start = self._turn % len(engines) if engines else 0
        return (engines[start:] + engines[:start])[:MAX_ENGINES_ASKED]
