"""Relays one engine's answer to the client, byte for byte and at once, and reports its progress to the lifecycle.

Until the first byte has gone to the client nothing is final: a failure is returned, and the caller
may try another engine. After that, a stream whose engine fails ends with an error event.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gateway.engines.breaker import BROKEN_STREAM, CONNECT, NO_PROGRESS
from gateway.formats.engine_usage import Usage, usage_of
from gateway.http.http_exchange import Exchange
from gateway.pool.recent_decisions import DecisionRecord
from gateway.proxy.attempt import HANDOFF, Attempt, AttemptFailedError, AttemptFailure
from gateway.proxy.engine_transport import EngineAnswer, EngineTransport
from gateway.requests.kv_answer import take_outcome
from gateway.requests.lifecycle import RequestLifecycle

if TYPE_CHECKING:
    from gateway.pool.live_pool import LivePool

MAX_WHOLE_ANSWER = 64 * 1024 * 1024
_ASSUMED_PREFILL_MARGIN_S = 0.05


class AnswerStream:
    """A streamed answer to the client; notifies the lifecycle of its first bytes and its end."""

    def __init__(
        self, lifecycle: RequestLifecycle, record: DecisionRecord, attempt: Attempt, answer: EngineAnswer
    ) -> None:
        self._lifecycle = lifecycle
        self._record = record
        self._attempt = attempt
        self._answer = answer
        self._progress = record.pool.progress.engine(attempt.engine.entry.engine_id)
        self._begun = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await anext(self._answer)
        except StopAsyncIteration:
            if not self._begun:
                raise self._attempt.failed(CONNECT, proves=True) from None
            raise
        if not self._begun:
            if not self._answer.begun:
                return chunk
            self._begun = True
            self._lifecycle.first_token(self._record, monotonic())
            self._attempt.engine.breaker.record_success(monotonic())
        self._progress.chunks += 1
        return chunk

    def close(self) -> None:
        """Note that the client has got the whole answer."""
        self._lifecycle.loaded(self._record, self._answer.loaded)
        complete(self._lifecycle, self._record, self._answer.usage.usage)


class EngineRelay:
    """One attempt after the other; keeps no state between them."""

    def __init__(self, lifecycle: RequestLifecycle, transport: EngineTransport) -> None:
        self._lifecycle = lifecycle
        self._transport = transport

    async def relay(self, exchange: Exchange, record: DecisionRecord, attempt: Attempt) -> AttemptFailure | None:
        """Relay one answer; None: the request has had its end, and the record says which."""
        try:
            with self._watched(record, attempt):
                async with self._transport.answer(attempt) as answer:
                    attempt = await _met(attempt, answer)
                    await (self._stream if answer.streams else self._whole)(exchange, record, attempt, answer)
        except AttemptFailedError as error:
            if not exchange.started:
                return held_against(record.pool, attempt, error.failure)
            await self._break_off(exchange, record, attempt, error.failure)
        return None

    @contextmanager
    def _watched(self, record: DecisionRecord, attempt: Attempt) -> Iterator[None]:
        """Note how the answer will come; one in one piece shows no first token, so the estimate stands in for it.

        Without one the router would take decoding for prefill and hold the engine's other requests back.
        """
        progress, name = record.pool.progress.engine(attempt.engine.entry.engine_id), record.decision.decision_id
        if attempt.request.streams:
            progress.streams(name)
            yield
            return
        progress.whole(name)
        assumed = asyncio.get_running_loop().call_later(
            attempt.prefill_s + _ASSUMED_PREFILL_MARGIN_S, self._lifecycle.assume_first_token, record
        )
        try:
            yield
        finally:
            assumed.cancel()

    async def _stream(self, exchange: Exchange, record: DecisionRecord, attempt: Attempt, answer: EngineAnswer) -> None:
        stream = AnswerStream(self._lifecycle, record, attempt, answer)
        async for chunk in stream:
            if not exchange.started and answer.begun:
                await exchange.start(200, answer.headers)
            if chunk:
                await exchange.chunk(chunk)
        if rest := answer.usage.rest():
            await exchange.chunk(rest)
        stream.close()
        await exchange.end()

    async def _whole(self, exchange: Exchange, record: DecisionRecord, attempt: Attempt, answer: EngineAnswer) -> None:
        # A whole answer goes out only when it is complete: until then another engine can still give it.
        body = await answer.whole(MAX_WHOLE_ANSWER)
        body, loaded = take_outcome(body) if attempt.request.orders else (body, None)
        shown = attempt.shown(body, answer.status)
        attempt.engine.breaker.record_success(monotonic())
        self._lifecycle.loaded(record, loaded)
        if answer.status == 200:
            complete(self._lifecycle, record, usage_of(body))
        else:
            self._lifecycle.rejected_by_engine(record, attempt.engine.entry.engine_id, answer.status)
        await exchange.answer(answer.status, shown, answer.headers)

    async def _break_off(
        self, exchange: Exchange, record: DecisionRecord, attempt: Attempt, failure: AttemptFailure
    ) -> None:
        if failure.proves:
            attempt.engine.breaker.record_failure(BROKEN_STREAM, monotonic())
        self._lifecycle.failed(record, monotonic(), BROKEN_STREAM)
        message = "The engine failed during the answer; retry the request."
        await exchange.chunk(attempt.request.endpoint.errors.event(502, message, BROKEN_STREAM))
        await exchange.end()


async def _met(attempt: Attempt, answer: EngineAnswer) -> Attempt:
    """Wait for the prefill that runs beside the try, if any; raises AttemptFailedError where nothing is handed over."""
    if attempt.after is None:
        return attempt
    await asyncio.wait((attempt.after,))
    end = attempt.after.result()
    if not end.went_well:
        raise attempt.failed(HANDOFF)
    if end.told_tokens is not None:
        answer.usage.tell_cached(end.told_tokens)
        attempt = replace(attempt, request=replace(attempt.request, cached_tokens=end.told_tokens))
    return attempt


def complete(lifecycle: RequestLifecycle, record: DecisionRecord, used: Usage | None) -> None:
    """Note a whole answer with what its engine says it used."""
    used = used or Usage()
    lifecycle.completed(
        record,
        monotonic(),
        cached_tokens=used.cached_tokens,
        output_tokens=used.output_tokens,
        prompt_tokens=used.counted_tokens,
    )


def held_against(pool: LivePool, attempt: Attempt, failure: AttemptFailure) -> AttemptFailure:
    """Let the breaker of the engine know of a failure before the first byte, and return it."""
    if failure.rejection is not None:
        pool.refusals.rejected(attempt.engine, failure.rejection, monotonic())
    elif failure.proves and failure.kind not in (NO_PROGRESS, HANDOFF):
        attempt.engine.breaker.record_failure(failure.kind, monotonic())
    return failure
