"""Sends one request to one engine and relays its answer, byte for byte and at once.

Until the first byte has gone to the client nothing is final: a failure is returned, and the caller
may try another engine. After that, a stream whose engine fails ends with an error event.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING

import aiohttp
import msgspec

from gateway.engines.breaker import BROKEN_STREAM, CONNECT, HTTP_4XX, HTTP_5XX, NO_PROGRESS, THROTTLED, TIMEOUT
from gateway.engines.engine_rejection import REJECTIONS, TOO_MANY, Rejection, passed_headers, read_rejection
from gateway.http.http_exchange import Exchange
from gateway.http.openai_error import ApiError, error_body
from gateway.pool.recent_decisions import DecisionRecord
from gateway.proxy.forwarded_request import ForwardedRequest
from gateway.proxy.progress_guard import EngineSilentError, ProgressGuard
from gateway.requests.lifecycle import RequestLifecycle
from gateway.requests.openai_usage import StreamUsage, usage_of, with_cached_tokens

if TYPE_CHECKING:
    from gateway.engines.live_engine import LiveEngine

HANDOFF = "handoff"
"""An engine that answered a prefill leg without handing anything over: no failure of the engine itself."""

MAX_WHOLE_ANSWER = 64 * 1024 * 1024
BROKEN = (aiohttp.ClientError, OSError, EngineSilentError, asyncio.IncompleteReadError)


class RelaySettings(msgspec.Struct, frozen=True):
    """Times in seconds. `first_byte_s` covers the engine's own queue and prefill."""

    connect_s: float = 2.0
    first_byte_s: float = 300.0
    prefill_leg_s: float = 300.0
    """Until a prefill engine has answered; `decode_leg_s`: until its decode engine's first byte."""
    decode_leg_s: float = 60.0
    idle_s: float = 120.0


class AttemptFailure(msgspec.Struct, frozen=True):
    """An attempt that failed before the client got a byte. `kind` is the breaker's word for it, or HANDOFF."""

    kind: str
    status: int = 0
    engine_id: str = ""
    """Which engine failed; empty: the decision's."""
    rejection: Rejection | None = None
    """What it answered, where that goes to the client if all engines answer likewise."""

    def as_error(self) -> ApiError:
        """Return the answer for the client if no other attempt is made."""
        if self.kind == TIMEOUT:
            return ApiError(504, "The engine did not answer in time; try again.", "engine_timeout", retry_after_s=1.0)
        if self.kind == HANDOFF:
            return ApiError(502, "The engine did not hand over the prompt; try again.", "handoff_failed")
        if self.kind == THROTTLED:
            pause_s = self.rejection.pause_s if self.rejection is not None else None
            message = "The engines are throttling; try again later."
            return ApiError(503, message, "engine_busy", retry_after_s=pause_s or 1.0)
        if self.kind == HTTP_4XX or (self.kind == HTTP_5XX and self.status != 503):
            return ApiError(502, f"The engine failed with status {self.status}; try again.", "engine_error")
        code = "engine_busy" if self.kind == HTTP_5XX else "engine_unreachable"
        return ApiError(503, "No engine accepted the request; try again.", code, retry_after_s=1.0)


class EngineRelay:
    """One attempt after the other; keeps no state between them."""

    def __init__(self, lifecycle: RequestLifecycle, settings: RelaySettings) -> None:
        self._lifecycle = lifecycle
        self._settings = settings

    async def attempt(
        self,
        exchange: Exchange,
        engine: LiveEngine,
        record: DecisionRecord,
        request: ForwardedRequest,
        *,
        first_byte_s: float | None = None,
    ) -> AttemptFailure | None:
        """Relay one answer; None: the request has had its end, and the record says which."""
        settings, begun_s = self._settings, monotonic()
        first_s = settings.first_byte_s if first_byte_s is None else first_byte_s
        progress, name = record.pool.progress.engine(engine.entry.engine_id), record.decision.decision_id
        (progress.streams if request.streams else progress.whole)(name)
        try:
            with ProgressGuard(engine, first_s=first_s, idle_s=settings.idle_s) as guard:
                async with engine.session.post(
                    engine.entry.url.rstrip("/") + request.path,
                    data=request.payload(),
                    headers=engine.authorized(request.headers),
                    allow_redirects=False,
                    timeout=aiohttp.ClientTimeout(total=None, sock_connect=settings.connect_s),
                ) as response:
                    return await self._relay(exchange, engine, record, request, response, guard)
        except BROKEN as error:
            return await self._broken(exchange, engine, record, error, begun_s)

    async def _relay(
        self,
        exchange: Exchange,
        engine: LiveEngine,
        record: DecisionRecord,
        request: ForwardedRequest,
        response: aiohttp.ClientResponse,
        guard: ProgressGuard,
    ) -> AttemptFailure | None:
        if response.status >= 500 or response.status < 200 or 300 <= response.status < 400:
            response.close()
            engine.breaker.record_failure(HTTP_5XX, monotonic())
            return AttemptFailure(HTTP_5XX, response.status)
        # A decode engine's 404 may mean the KV that it was to fetch.
        if response.status in REJECTIONS and not (request.handed_over and response.status == 404):
            return await self.rejected(engine, record, response)
        if request.handed_over and response.status >= 400:
            response.close()
            return AttemptFailure(HANDOFF, response.status)
        if response.status == 200 and response.content_type == "text/event-stream":
            return await self._stream(exchange, engine, record, request, response, guard)
        return await self._whole(exchange, engine, record, request, response, guard)

    async def rejected(
        self, engine: LiveEngine, record: DecisionRecord, response: aiohttp.ClientResponse
    ) -> AttemptFailure:
        """Return an answer that another engine may not give, and let the engine's breaker know of it."""
        rejection = await read_rejection(response)
        record.pool.refusals.rejected(engine, rejection, monotonic())
        kind = THROTTLED if rejection.status == TOO_MANY else HTTP_4XX
        return AttemptFailure(kind, rejection.status, engine.entry.engine_id, rejection)

    async def _stream(
        self,
        exchange: Exchange,
        engine: LiveEngine,
        record: DecisionRecord,
        request: ForwardedRequest,
        response: aiohttp.ClientResponse,
        guard: ProgressGuard,
    ) -> AttemptFailure | None:
        usage = StreamUsage(strip=request.strip_usage, cached_tokens=request.cached_tokens)
        progress = record.pool.progress.engine(engine.entry.engine_id)
        async for chunk in response.content.iter_any():
            guard.progress()
            if not exchange.started:
                self._lifecycle.first_token(record, monotonic())
                engine.breaker.record_success(monotonic())
                await exchange.start(200, passed_headers(response))
            progress.chunks += 1
            passed = usage.feed(chunk)
            if passed:
                guard.sending = True
                await exchange.chunk(passed)
                guard.sending = False
                guard.progress()
        if not exchange.started:
            return self._failed_before_first_byte(engine, CONNECT)
        rest = usage.rest()
        if rest:
            await exchange.chunk(rest)
        used = usage.usage
        self._lifecycle.completed(
            record,
            monotonic(),
            cached_tokens=used.cached_tokens if used is not None else None,
            output_tokens=used.output_tokens if used is not None else None,
            prompt_tokens=used.counted_tokens if used is not None else None,
        )
        await exchange.end()
        return None

    async def _whole(
        self,
        exchange: Exchange,
        engine: LiveEngine,
        record: DecisionRecord,
        request: ForwardedRequest,
        response: aiohttp.ClientResponse,
        guard: ProgressGuard,
    ) -> AttemptFailure | None:
        # A whole answer goes out only when it is complete: until then another engine can still give it.
        body = bytearray()
        async for chunk in response.content.iter_any():
            guard.progress()
            body += chunk
            if len(body) > MAX_WHOLE_ANSWER:
                return self._failed_before_first_byte(engine, HTTP_5XX)
        engine.breaker.record_success(monotonic())
        if response.status == 200:
            used = usage_of(bytes(body))
            self._lifecycle.completed(
                record,
                monotonic(),
                cached_tokens=used.cached_tokens if used is not None else None,
                output_tokens=used.output_tokens if used is not None else None,
                prompt_tokens=used.counted_tokens if used is not None else None,
            )
        else:
            record.pool.progress.engine(engine.entry.engine_id).rejected(monotonic())
            self._lifecycle.client_error(record, monotonic(), response.status)
        answer = (
            bytes(body) if request.cached_tokens is None else with_cached_tokens(bytes(body), request.cached_tokens)
        )
        await exchange.answer(response.status, answer, passed_headers(response))
        return None

    async def _broken(
        self, exchange: Exchange, engine: LiveEngine, record: DecisionRecord, error: BaseException, begun_s: float
    ) -> AttemptFailure | None:
        proves = is_evidence(error, engine, begun_s)
        if not exchange.started:
            silent = isinstance(error, EngineSilentError) and not engine.lost
            if silent and engine.stuck:
                return AttemptFailure(NO_PROGRESS)
            kind = TIMEOUT if silent else CONNECT
            return self._failed_before_first_byte(engine, kind) if proves else AttemptFailure(kind)
        if proves:
            engine.breaker.record_failure(BROKEN_STREAM, monotonic())
        self._lifecycle.failed(record, monotonic(), BROKEN_STREAM)
        event = error_body(502, "The engine failed during the answer; retry the request.", BROKEN_STREAM)
        await exchange.chunk(b"\n\ndata: " + event + b"\n\n")
        await exchange.end()
        return None

    def _failed_before_first_byte(self, engine: LiveEngine, kind: str) -> AttemptFailure:
        engine.breaker.record_failure(kind, monotonic())
        return AttemptFailure(kind)


def is_evidence(error: BaseException, engine: LiveEngine, begun_s: float) -> bool:
    """Return whether an attempt's end speaks against the engine; a time-out does not where this process was away."""
    timed_out = isinstance(error, TimeoutError | EngineSilentError)
    return not timed_out or engine.lag.vouches(begun_s, monotonic())
