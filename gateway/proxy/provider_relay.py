"""Relays an external provider's answer to the client, and records its status, usage, and cost.

Until the answer has begun, nothing is sent to the client, so that the rest of the service can still serve the request.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gateway.base.event_log import log_event
from gateway.contracts.snapshot import ProviderEntry
from gateway.pools.engines.breaker import BROKEN_STREAM
from gateway.pools.engines.engine_rejection import MAX_BODY_BYTES, is_encoded, passed_headers, rejection_of
from gateway.pools.services.provider import Provider, ProviderFailedError
from gateway.pools.traffic.traffic_window import CANCELLED, COMPLETED, FAILED
from gateway.proxy.api_call import ApiCall
from gateway.proxy.attempt import RelaySettings
from gateway.proxy.engine_relay import MAX_WHOLE_ANSWER
from gateway.proxy.forwarded_request import ForwardedRequest, forwarded_request
from gateway.requests.formats.endpoints import CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES_PATH
from gateway.requests.formats.engine_answer import AnswerStream, UnreadableAnswerError, read_whole
from gateway.requests.formats.engine_usage import Usage
from gateway.requests.lifecycle import CLIENT_ERROR, RequestLifecycle
from gateway.server.process.drain import CUT_OFF, SENTENCE, Drain, ShuttingDownError

if TYPE_CHECKING:
    import aiohttp

    from gateway.pools.pool.recent_decisions import DecisionRecord

PATHS = frozenset((CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES_PATH))
"""Paths of OpenAI's API that providers serve."""
CONTENT_FAULTS = frozenset((400, 413, 422))
"""Statuses that blame the request's content. The client gets them; any other error is the provider's failure."""
SILENCE_S = 120.0
"""Time without a byte after which a provider's answer has failed."""
_OURS = ("session_id", "agent", "workflow_id")
"""Body fields of Headway's own API, which providers reject as unknown."""


def provider_takes(call: ApiCall) -> str:
    """Return why no provider can serve the call's path; empty if one can."""
    return "" if call.endpoint.path in PATHS else "path"


class ProviderRelay:
    """Relays one answer at a time. It has no state between requests."""

    def __init__(self, lifecycle: RequestLifecycle, drain: Drain, settings: RelaySettings) -> None:
        self._lifecycle = lifecycle
        self._drain = drain
        self._settings = settings

    async def relay(self, call: ApiCall, record: DecisionRecord, provider: Provider) -> bool:
        """Relay one answer. Return False if the provider gave none and nothing was sent to the client."""
        request = _request(call, provider.entry.model)
        end: tuple[str, str] | None = CANCELLED, "client_gone"
        try:
            with self._drain.relay():
                end = await self._answered(call, record, provider, request)
        except ProviderFailedError as error:
            provider.failed(error, monotonic())
            _log_failure(record, provider, str(error), error.status)
            _record_status(record, error.status)
            end = (FAILED, BROKEN_STREAM) if call.exchange.started else None
            if end is not None:
                message = "The provider failed during the answer; retry the request."
                await call.exchange.chunk(call.endpoint.errors.event(502, message, BROKEN_STREAM))
                await call.exchange.end()
        except asyncio.CancelledError:
            if not self._drain.cut:
                raise
            end = FAILED, CUT_OFF
            if not call.exchange.started:
                raise ShuttingDownError from None
            await call.exchange.chunk(call.endpoint.errors.event(503, SENTENCE, CUT_OFF))
            await call.exchange.end()
        finally:
            if end is not None:
                self._lifecycle.provider_ended(record, end[0], monotonic(), end[1])
        return end is not None

    async def _answered(
        self, call: ApiCall, record: DecisionRecord, provider: Provider, request: ForwardedRequest
    ) -> tuple[str, str]:
        """Relay the answer, and return (outcome, error code); raise ProviderFailedError."""
        limits = self._settings
        body = await _body(request)
        silence_s = min(SILENCE_S, limits.hang_s)
        async with provider.answer(call.endpoint.path, body, silence_s=silence_s, whole_s=limits.answer_s) as response:
            status, streams = response.status, response.content_type == "text/event-stream"
            if status != 200 and status not in CONTENT_FAULTS:
                raise ProviderFailedError(
                    f"status {status}", status, rejection_of(status, response.headers, b"").pause_s
                )
            if is_encoded(response.headers):
                raise ProviderFailedError("encoded", status)
            if status == 200 and streams:
                stream = await self._stream(call, record, provider, request, response)
                done = _completed(record, provider.entry, stream.usage)
                return done if stream.error is None else (FAILED, BROKEN_STREAM)
            whole = await _whole(response)
            usage = _read(whole) if status == 200 else None
            provider.succeeded()
            if status != 200:
                _record_status(record, status)
                await call.exchange.answer(status, whole, passed_headers(response.headers))
                return CLIENT_ERROR, f"http_{status}"
            done = _completed(record, provider.entry, usage)
            await call.exchange.answer(200, whole, passed_headers(response.headers))
            return done

    async def _stream(
        self,
        call: ApiCall,
        record: DecisionRecord,
        provider: Provider,
        request: ForwardedRequest,
        response: aiohttp.ClientResponse,
    ) -> AnswerStream:
        """Relay a stream from its first content on; raise ProviderFailedError if it has none or breaks off."""
        exchange, stream = call.exchange, AnswerStream(strip=request.strip_usage)
        async for chunk in response.content.iter_any():
            passed = stream.feed(chunk)
            if stream.error is not None and not exchange.started:
                raise ProviderFailedError("error event", stream.error.status)
            if stream.begun and not exchange.started:
                record.first_token_s = monotonic()
                provider.succeeded()
                await exchange.start(200, passed_headers(response.headers))
            if passed:
                await exchange.chunk(passed)
        if not exchange.started or not (stream.ended or stream.usage or call.endpoint.path == RESPONSES_PATH):
            raise ProviderFailedError("ended early")
        rest = stream.rest()
        if rest:
            await exchange.chunk(rest)
        await exchange.end()
        return stream


def _request(call: ApiCall, model: str) -> ForwardedRequest:
    """Return the request with the provider's name of the model, without fields for Headway or engines only."""
    body = {**call.body, "model": model}
    request = forwarded_request(
        call.endpoint, call.original, body, {}, held=call.held, request_id="", salt="", shows_hits=False, renamed=True
    )
    return request.without(_OURS)


async def _body(request: ForwardedRequest) -> bytes:
    payload, _ = request.payload()
    return payload if isinstance(payload, bytes) else b"".join([bytes(piece) async for piece in payload])


async def _whole(response: aiohttp.ClientResponse) -> bytes:
    limit = MAX_WHOLE_ANSWER if response.status == 200 else MAX_BODY_BYTES
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > limit:
            raise ProviderFailedError("too long", response.status)
    return bytes(body)


def _read(whole: bytes) -> Usage | None:
    """Return the usage of a complete answer; raise ProviderFailedError if it is none."""
    try:
        usage, error = read_whole(whole)
    except UnreadableAnswerError:
        raise ProviderFailedError("unreadable", 200) from None
    if error is not None:
        raise ProviderFailedError("error in the answer", error.status)
    return usage


def _completed(record: DecisionRecord, entry: ProviderEntry, usage: Usage | None) -> tuple[str, str]:
    used = usage or Usage()
    prompt, output = used.counted_tokens, used.output_tokens
    record.engine_prompt_tokens, record.output_tokens = prompt, output
    cost = None if prompt is None else (prompt * entry.input_cost + (output or 0) * entry.output_cost) / 1e6
    _record_status(record, 200, cost)
    return COMPLETED, ""


def _record_status(record: DecisionRecord, status: int, cost: float | None = None) -> None:
    if record.service is not None:
        record.service = replace(record.service, status=status, cost=cost)


def _log_failure(record: DecisionRecord, provider: Provider, cause: str, status: int) -> None:
    log_event(
        "provider_failed",
        decision_id=record.decision.decision_id,
        client_request_id=record.client_request_id,
        provider=provider.host,
        cause=cause,
        status=status,
    )
