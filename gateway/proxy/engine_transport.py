"""Sends one attempt to its engine and yields the answer: status, bytes as they arrive, and usage. It does no
accounting.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic

import aiohttp
from msgspec.structs import replace

from gateway.engines.breaker import CONNECT, HTTP_5XX, NO_PROGRESS, TIMEOUT
from gateway.engines.engine_rejection import EngineRejection, blame_of, is_encoded, passed_headers, read_rejection
from gateway.formats.engine_answer import AnswerStream, UnreadableAnswerError, read_whole
from gateway.formats.engine_error import EngineError
from gateway.formats.engine_usage import Usage
from gateway.formats.hit_figures import HitsUnreadableError
from gateway.http.http_exchange import JSON
from gateway.proxy.attempt import HANDOFF, Attempt, AttemptFailedError, AttemptFailure, RelaySettings
from gateway.proxy.progress_guard import EngineSilentError, ProgressGuard
from gateway.requests.kv_load_report import TRANSFER_MARK, take_outcome
from kvstore.connector.engine_params import KvOutcome

_JSON_TYPES = frozenset(("application/json", "application/octet-stream"))
"""The second is aiohttp's value for a response without a content type."""
_BROKEN = (aiohttp.ClientError, OSError, EngineSilentError, asyncio.IncompleteReadError)


class EngineAnswer:
    """An answer whose head has arrived. Call `open` first; iteration then yields the client's bytes of a streamed
    answer.

    Mutable: an engine's error in place of an answer changes `status`, and makes a streamed answer a complete one.
    """

    def __init__(self, attempt: Attempt, response: aiohttp.ClientResponse, guard: ProgressGuard) -> None:
        self.status = response.status
        self.headers = passed_headers(response)
        self.streams = response.status == 200 and response.content_type == "text/event-stream"
        request = attempt.request
        self.stream = AnswerStream(
            strip=request.strip_usage,
            cached_tokens=request.cached_tokens,
            mark=TRANSFER_MARK,
            take=self._take if request.orders else None,
        )
        self.used: Usage | None = None
        """The usage in a complete answer."""
        self.loaded: KvOutcome | None = None
        """The KV connector's report on the load, complete once the stream has ended."""
        self._is_json = response.content_type in _JSON_TYPES
        self._attempt = attempt
        self._chunks = response.content.iter_any()
        self._guard = guard
        self._error: EngineError | None = None
        self._first = b""
        self._passed = b""

    async def open(self) -> None:
        """Wait until a streamed answer begins; raise AttemptFailedError if the engine sends an error instead.

        An error caused by the request becomes the complete answer.
        """
        stream = self.stream
        while self.streams and not stream.begun:
            try:
                self._first = self._feed(await anext(self._chunks))
            except StopAsyncIteration:
                if not stream.ended:
                    raise self._attempt.failed(CONNECT, proves=True) from None
                return
            if stream.error is not None:
                self._take_error(stream.error)
        self._guard.progress()

    def __aiter__(self) -> EngineAnswer:
        return self

    async def __anext__(self) -> bytes:
        """Return the bytes to relay to the client, empty while they are held back. The next call implies that they were
        sent.
        """
        if self._passed:
            self._guard.sending = False
            self._guard.progress()
        if self._first:
            self._passed, self._first = self._first, b""
        else:
            chunk = await anext(self._chunks)
            self._guard.progress()
            self._passed = self._feed(chunk)
        self._guard.sending = bool(self._passed)
        return self._passed

    def _feed(self, chunk: bytes) -> bytes:
        try:
            return self.stream.feed(chunk)
        except HitsUnreadableError:
            raise self._attempt.failed(HTTP_5XX, self.status) from None

    def _take(self, data: bytes) -> bytes:
        left, outcome = take_outcome(data)
        self.loaded = outcome or self.loaded
        return left

    async def whole(self, limit: int, kind: str = HTTP_5XX) -> bytes:
        """Return the complete body. A body that exceeds `limit` bytes or is no answer fails the attempt as `kind`."""
        if self._error is not None:
            return self._error.body
        body = bytearray()
        async for chunk in self._chunks:
            self._guard.progress()
            body += chunk
            if len(body) > limit:
                raise self._attempt.failed(kind, proves=True)
        if self.status == 200:
            return self._read(bytes(body), kind)
        return bytes(body)

    def _read(self, body: bytes, kind: str) -> bytes:
        """Return the client's part of a complete answer with status 200."""
        try:
            if not self._is_json and self._attempt.request.endpoint.answers_json:
                raise UnreadableAnswerError
            self.used, error = read_whole(body) if self._is_json else (None, None)
        except UnreadableAnswerError:
            raise self._attempt.failed(kind, self.status, proves=True) from None
        if error is None:
            return body
        self._take_error(error)
        return error.body

    def _take_error(self, error: EngineError) -> None:
        """Become the error's complete answer; raise AttemptFailedError if another engine might not give it."""
        rejection = EngineRejection(error.status, error.body, [JSON])
        _blame(self._attempt, rejection)
        self.status, self.headers, self.streams, self._error = error.status, [JSON], False, error


class EngineTransport:
    """Sends one attempt at a time. It has no state between attempts."""

    def __init__(self, settings: RelaySettings) -> None:
        self._settings = settings

    @asynccontextmanager
    async def answer(self, attempt: Attempt) -> AsyncIterator[EngineAnswer]:
        """Yield the engine's answer; raise AttemptFailedError if there is none, or if it ends early."""
        engine, request, begun_s = attempt.engine, attempt.request, monotonic()
        payload, of_payload = request.payload()
        try:
            with ProgressGuard(attempt, attempt.limits) as guard:
                async with engine.session.post(
                    engine.entry.url.rstrip("/") + request.endpoint.path,
                    data=payload,
                    headers={**engine.addressed(request.headers), **of_payload},
                    # A redirect would take the prompt and the engine's key to another address.
                    allow_redirects=False,
                    # No limit on the answer: the guard ends it by evidence (decision 57).
                    timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._settings.connect_s),
                ) as response:
                    await _reject(attempt, response)
                    yield EngineAnswer(attempt, response, guard)
        except _BROKEN as error:
            raise _broken(attempt, error, begun_s) from None


async def _reject(attempt: Attempt, response: aiohttp.ClientResponse) -> None:
    """Raise AttemptFailedError for an answer that another engine might not give."""
    status = response.status
    if status == 200 and not is_encoded(response):
        return
    if 300 <= status < 400 or status < 200 or is_encoded(response):
        response.close()
        raise attempt.failed(HTTP_5XX, status, proves=True)
    if status >= 400 and (attempt.request.handed_over or blame_of(status)):
        _blame(attempt, await read_rejection(response))


def _blame(attempt: Attempt, rejection: EngineRejection) -> None:
    """Raise AttemptFailedError for an error that can be the engine's fault; return for a fault of the request."""
    status, handed_over = rejection.status, attempt.request.handed_over
    rejection = replace(rejection, body=attempt.shown(rejection.body, status))
    kind = blame_of(status)
    if kind == HTTP_5XX and (handed_over or attempt.partner is not None):
        # The hand-over may be at fault, so the answer is no evidence about the request.
        raise attempt.failed(HTTP_5XX, status, proves=True)
    # A decode engine's 404 may mean the KV that it was to fetch.
    if kind and not (handed_over and status == 404):
        raise AttemptFailedError(AttemptFailure(kind, attempt.engine.entry.engine_id, status, True, rejection))
    if handed_over:
        raise attempt.failed(HANDOFF, status)


def _broken(attempt: Attempt, error: BaseException, begun_s: float) -> AttemptFailedError:
    """Return the attempt's failure for a broken connection or a silent engine."""
    engine, partner = attempt.engine, attempt.partner
    if partner is not None and partner.breaker.lost and not engine.breaker.lost:
        return AttemptFailedError(AttemptFailure(CONNECT, partner.entry.engine_id))
    timed_out = isinstance(error, TimeoutError | EngineSilentError)
    proves = not timed_out or engine.lag.vouches(begun_s, monotonic())
    if not isinstance(error, EngineSilentError):
        return attempt.failed(CONNECT, proves=proves)
    stalled = [item for item in (engine, partner) if item is not None and (item.stuck or item.breaker.hung)]
    if stalled:
        return AttemptFailedError(AttemptFailure(NO_PROGRESS, stalled[0].entry.engine_id, proves=proves))
    return attempt.failed(CONNECT if engine.lost else TIMEOUT, proves=proves, final=error.late)
