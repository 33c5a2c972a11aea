"""Relays one engine's answer to the client unchanged and without delay, and reports its progress to the lifecycle.

Until the answer has begun, nothing is sent to the client: a failure is returned, and the caller can try another engine.
After that, a stream whose engine fails ends with an error event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gateway.engines.breaker import BROKEN_STREAM, NO_PROGRESS
from gateway.engines.engine_rejection import blame_of
from gateway.formats.engine_error import EngineError
from gateway.formats.engine_usage import Usage
from gateway.http.http_exchange import Exchange
from gateway.pool.recent_decisions import DecisionRecord
from gateway.proxy.attempt import HANDOFF, Attempt, AttemptFailedError, AttemptFailure
from gateway.proxy.engine_transport import EngineAnswer, EngineTransport
from gateway.requests.kv_load_report import take_outcome
from gateway.requests.lifecycle import RequestLifecycle

if TYPE_CHECKING:
    from gateway.pool.live_pool import LivePool

MAX_WHOLE_ANSWER = 64 * 1024 * 1024
_ASSUMED_PREFILL_MARGIN_S = 0.05


class EngineRelay:
    """Relays one attempt at a time. It has no state between attempts."""

    def __init__(self, lifecycle: RequestLifecycle, transport: EngineTransport) -> None:
        self._lifecycle = lifecycle
        self._transport = transport

    async def relay(self, exchange: Exchange, record: DecisionRecord, attempt: Attempt) -> AttemptFailure | None:
        """Relay one answer. None: the request has ended, and the record states how."""
        try:
            with self._watched(record, attempt):
                async with self._transport.answer(attempt) as answer:
                    attempt = await _met(attempt, answer)
                    await answer.open()
                    await (self._stream if answer.streams else self._whole)(exchange, record, attempt, answer)
        except AttemptFailedError as error:
            if not exchange.started:
                # The adapter may have been unloaded since the engine's models were read.
                if error.failure.status == 404 and record.asked_model:
                    attempt.engine.doubt_models()
                return held_against(record.pool, attempt, error.failure)
            await self._break_off(exchange, record, attempt, error.failure)
        return None

    @contextmanager
    def _watched(self, record: DecisionRecord, attempt: Attempt) -> Iterator[None]:
        """Record whether the answer is streamed. An answer in one piece has no visible first token, so the estimate
        replaces it.

        Without an estimate, the router would take decoding for prefill and hold back the engine's other requests.
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
        progress = record.pool.progress.engine(attempt.engine.entry.engine_id)
        if answer.stream.begun:
            self._lifecycle.first_token(record, monotonic())
        attempt.engine.breaker.record_success(monotonic())
        await exchange.start(200, answer.headers, answer.take_first())
        client = exchange.stream()
        try:
            await answer.relay_to(client, progress)
            await self._end(exchange, record, attempt, answer)
        finally:
            client.follow(None)

    async def _end(self, exchange: Exchange, record: DecisionRecord, attempt: Attempt, answer: EngineAnswer) -> None:
        last = answer.last + answer.stream.rest()
        self._lifecycle.loaded(record, answer.loaded)
        if answer.stream.error is None:
            # Before the end: a client that leaves now had its whole answer.
            complete(self._lifecycle, record, answer.stream.usage)
        else:
            self._failed_within(record, attempt, answer.stream.error)
        await exchange.end(last)

    def _failed_within(self, record: DecisionRecord, attempt: Attempt, error: EngineError) -> None:
        """Record an engine's error within a stream, which the client has received."""
        if blame_of(error.status):
            attempt.engine.breaker.record_failure(BROKEN_STREAM, monotonic())
            self._lifecycle.failed(record, monotonic(), BROKEN_STREAM)
        else:
            self._lifecycle.client_error(record, monotonic(), error.status)

    async def _whole(self, exchange: Exchange, record: DecisionRecord, attempt: Attempt, answer: EngineAnswer) -> None:
        # A whole answer goes out only when it is complete: until then another engine can still give it.
        body = await answer.whole(MAX_WHOLE_ANSWER)
        body, loaded = take_outcome(body) if attempt.request.orders else (body, None)
        shown = attempt.shown(body, answer.status)
        attempt.engine.breaker.record_success(monotonic())
        self._lifecycle.loaded(record, loaded)
        if answer.status == 200:
            complete(self._lifecycle, record, answer.used)
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
    """Wait for the attempt's concurrent prefill, if any; raise AttemptFailedError if nothing was handed over."""
    if attempt.after is None:
        return attempt
    await asyncio.wait((attempt.after,))
    end = attempt.after.result()
    if not end.went_well:
        raise attempt.failed(HANDOFF)
    if end.client_cached_tokens is not None:
        answer.stream.report_cached(end.client_cached_tokens)
        attempt = replace(attempt, request=replace(attempt.request, cached_tokens=end.client_cached_tokens))
    return attempt


def complete(lifecycle: RequestLifecycle, record: DecisionRecord, used: Usage | None) -> None:
    """Record a complete answer with the usage that its engine reported."""
    used = used or Usage()
    lifecycle.completed(
        record,
        monotonic(),
        cached_tokens=used.cached_tokens,
        output_tokens=used.output_tokens,
        prompt_tokens=used.counted_tokens,
    )


def held_against(pool: LivePool, attempt: Attempt, failure: AttemptFailure) -> AttemptFailure:
    """Report a failure before the first byte to the engine's breaker; return the failure."""
    if failure.rejection is not None:
        pool.rejections.rejected(attempt.engine, failure.kind, failure.rejection, monotonic())
    elif failure.proves and failure.kind not in (NO_PROGRESS, HANDOFF):
        attempt.engine.breaker.record_failure(failure.kind, monotonic())
    return failure
