"""Relays one engine's answer to the client unchanged and without delay, and reports its progress to the lifecycle.

Until the answer has begun, nothing is sent to the client: a failure is returned, and the caller can try another engine.
After that, a stream whose engine fails ends with an error event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from gateway.base.engine_api_keys import REJECTED_KEY
from gateway.pools.engines.breaker import BROKEN_STREAM, NO_PROGRESS
from gateway.pools.engines.engine_rejection import blame_of
from gateway.pools.pool.recent_decisions import DecisionRecord
from gateway.proxy.attempt import HANDOFF, Attempt, AttemptFailedError, AttemptFailure
from gateway.proxy.engine_transport import EngineAnswer, EngineTransport
from gateway.requests.formats.engine_usage import Usage
from gateway.requests.kv_load_report import take_outcome
from gateway.requests.lifecycle import RequestLifecycle
from gateway.server.http.http_exchange import Exchange
from kvstore.connector.engine_params import KvOutcome

if TYPE_CHECKING:
    from gateway.pools.pool.live_pool import LivePool

MAX_WHOLE_ANSWER = 64 * 1024 * 1024
BROKEN = 0
TIMED_STREAMS = 16
"""One stream in this many is timed chunk by chunk, because the others shall cost nothing more per token."""
_ASSUMED_PREFILL_MARGIN_S = 0.05


class AnswerEnd(msgspec.Struct, frozen=True):
    """How an answer ended that no other engine can give any more."""

    status: int
    """The engine's status, of its error if the stream contains one; BROKEN: the stream ended early."""
    usage: Usage | None = None
    loaded: KvOutcome | None = None
    proves: bool = True
    """Whether a failure is evidence against the engine."""
    streamed: bool = False


class EngineRelay:
    """Relays attempts. Mutable: the number of streams, of which some are timed."""

    def __init__(self, lifecycle: RequestLifecycle, transport: EngineTransport) -> None:
        self._lifecycle = lifecycle
        self._transport = transport
        self._streams = 0

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
                # The adapter may have been unloaded, or the engine's key replaced, since its models were read.
                gone = error.failure.status == 404 and record.asked_model
                if gone or error.failure.status in REJECTED_KEY:
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
        stream = answer.stream
        self._first_content(record, attempt, visible=stream.begun)
        await exchange.start(200, answer.headers, answer.take_first())
        client = exchange.stream()
        if self._streams % TIMED_STREAMS == 0:
            metrics = self._lifecycle.metrics
            of_model = metrics.models.of(record.decision.pool_id, record.model_name)
            answer.time_chunks(partial(metrics.itl.note, of_model))
        self._streams += 1
        try:
            await answer.relay_to(client, record.pool.progress.engine(attempt.engine.entry.engine_id))
            last = await client.last_part(answer.last + stream.rest())
            # Before the end: a client that leaves now had its whole answer.
            status = 200 if stream.error is None else stream.error.status
            self._closed(record, attempt, AnswerEnd(status, stream.usage, answer.loaded, streamed=True))
            await exchange.end(last)
        finally:
            client.follow(None)

    async def _whole(self, exchange: Exchange, record: DecisionRecord, attempt: Attempt, answer: EngineAnswer) -> None:
        # A whole answer goes out only when it is complete: until then another engine can still give it.
        body = await answer.whole(MAX_WHOLE_ANSWER)
        body, loaded = take_outcome(body) if attempt.request.orders else (body, None)
        shown = attempt.shown(body, answer.status)
        self._first_content(record, attempt, visible=False)
        self._closed(record, attempt, AnswerEnd(answer.status, answer.used, loaded))
        await exchange.answer(answer.status, shown, answer.headers)

    async def _break_off(
        self, exchange: Exchange, record: DecisionRecord, attempt: Attempt, failure: AttemptFailure
    ) -> None:
        self._closed(record, attempt, AnswerEnd(BROKEN, proves=failure.proves, streamed=True))
        message = "The engine failed during the answer; retry the request."
        await exchange.chunk(attempt.request.endpoint.errors.event(502, message, BROKEN_STREAM))
        await exchange.end()

    def _first_content(self, record: DecisionRecord, attempt: Attempt, *, visible: bool) -> None:
        """Report that the client gets this engine's answer. `visible`: its first token has just come."""
        if visible:
            self._lifecycle.first_token(record, monotonic())
        attempt.engine.breaker.record_success(monotonic())

    def _closed(self, record: DecisionRecord, attempt: Attempt, end: AnswerEnd) -> None:
        """Report how the answer ended."""
        lifecycle, now = self._lifecycle, monotonic()
        lifecycle.loaded(record, end.loaded)
        if end.status == BROKEN or (end.streamed and blame_of(end.status)):
            if end.proves:
                attempt.engine.breaker.record_failure(BROKEN_STREAM, now)
            lifecycle.failed(record, now, BROKEN_STREAM)
        elif end.status == 200:
            usage = end.usage or Usage()
            cached, output, prompt = usage.cached_tokens, usage.output_tokens, usage.counted_tokens
            lifecycle.completed(record, now, cached_tokens=cached, output_tokens=output, prompt_tokens=prompt)
        elif end.streamed:
            lifecycle.client_error(record, now, end.status)
        else:
            lifecycle.rejected_by_engine(record, attempt.engine.entry.engine_id, end.status)


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


def held_against(pool: LivePool, attempt: Attempt, failure: AttemptFailure) -> AttemptFailure:
    """Report a failure before the first byte to the engine's breaker; return the failure."""
    if failure.rejection is not None:
        pool.rejections.rejected(attempt.engine, failure.kind, failure.rejection, monotonic())
    elif failure.proves and failure.kind not in (NO_PROGRESS, HANDOFF):
        attempt.engine.breaker.record_failure(failure.kind, monotonic())
    return failure
