"""Sends one attempt to its engine and yields the answer: status, bytes as they arrive, and usage. It does no
accounting.

A streamed answer goes from the engine's socket to the client's without a coroutine: each read is scanned for events and
written. The request's task waits for the head, the first content and the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from time import monotonic

from msgspec.structs import replace

from gateway.pools.engines.breaker import CONNECT, HTTP_5XX, NO_PROGRESS, TIMEOUT
from gateway.pools.engines.connections.engine_connections import EngineConnections, EngineUrl, engine_address
from gateway.pools.engines.connections.request_connection import (
    MAX_HELD_BYTES,
    AnswerHead,
    ConnectionBrokenError,
    RequestConnection,
)
from gateway.pools.engines.engine_progress import EngineProgress
from gateway.pools.engines.engine_rejection import (
    MAX_BODY_BYTES,
    EngineRejection,
    blame_of,
    is_encoded,
    passed_headers,
    rejection_of,
)
from gateway.proxy.attempt import HANDOFF, Attempt, AttemptFailedError, AttemptFailure, RelaySettings
from gateway.proxy.progress_guard import EngineSilentError, ProgressGuard
from gateway.requests.formats.engine_answer import DONE, AnswerStream, UnreadableAnswerError, read_whole
from gateway.requests.formats.engine_error import EngineError
from gateway.requests.formats.engine_usage import Usage
from gateway.requests.formats.hit_figures import HitsUnreadableError
from gateway.requests.kv_load_report import TRANSFER_MARK, StreamedReport
from gateway.server.http.client_stream import ClientStream
from gateway.server.http.http_exchange import JSON
from kvstore.connector.engine_params import KvOutcome

_JSON_TYPES = frozenset(("application/json", "application/octet-stream"))
"""The second is assumed for a missing content type."""
_BROKEN = (OSError, EngineSilentError)
_NO_TOKEN = (DONE, b'"choices":[]', b'"choices": []')
"""Marks of events without a token, which end a stream: the usage, and the end itself."""


class EngineAnswer:
    """An answer whose head has arrived. Call `open` first, then `whole`, or `relay_to` for a streamed answer.

    Mutable: an engine's error in place of an answer changes `status`, and makes a streamed answer a complete one. As a
    BodyReceiver and a BodySource, it connects the engine's socket with the client's.
    """

    def __init__(self, attempt: Attempt, connection: RequestConnection, head: AnswerHead, guard: ProgressGuard) -> None:
        self.status = head.status
        self.headers = passed_headers(head.headers)
        self.streams = head.status == 200 and head.content_type == "text/event-stream"
        request, self._report = attempt.request, StreamedReport()
        self.stream = AnswerStream(
            strip=request.strip_usage,
            cached_tokens=request.cached_tokens,
            mark=TRANSFER_MARK,
            take=self._report.take if request.orders else None,
            facts=request.facts,
        )
        self.used: Usage | None = None
        """The usage in a complete answer."""
        self._is_json = head.content_type in _JSON_TYPES
        self._attempt = attempt
        self._connection = connection
        self._guard = guard
        self._error: EngineError | None = None
        self._first = b""
        self.last = b""
        """The last part of a streamed answer, once it has ended."""
        self._client: ClientStream | None = None
        self._progress: EngineProgress | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._ended = False
        self._failure: Exception | None = None

    @property
    def loaded(self) -> KvOutcome | None:
        """The KV connector's report on the load, complete once the stream has ended."""
        return self._report.outcome

    async def open(self) -> None:
        """Wait until a streamed answer begins; raise AttemptFailedError if the engine sends an error instead.

        An error caused by the request becomes the complete answer.
        """
        stream = self.stream
        if self.streams:
            self._connection.pass_on(self)
            if not (stream.begun or stream.error is not None):
                await self._end_of_stream()
            if not self._first:
                self._raise_failure()
            if stream.error is not None:
                self._take_error(stream.error)
            elif not stream.begun:
                if not stream.ended:
                    raise self._attempt.failed(CONNECT, proves=True)
                return
        self._guard.progress()

    def take_first(self) -> bytes:
        """Remove and return the beginning of a streamed answer, as far as it has come."""
        first, self._first = self._first, b""
        return first

    async def relay_to(self, client: ClientStream, progress: EngineProgress) -> None:
        """Write the streamed answer to the client until it ends; raise AttemptFailedError if it ends early.

        Each read of the engine's socket is counted in `progress`.
        """
        self._connection.resume()
        client.follow(self)
        if self._ended and self._failure is None:
            self.last = self.take_first()
        elif self._first:
            client.write(self.take_first())
        progress.chunks += 1
        self._client, self._progress = client, progress
        await client.until(self._end_of_stream())
        self._raise_failure()

    def _raise_failure(self) -> None:
        """Raise what ended the answer early, if anything did."""
        failure, self._failure = self._failure, None
        if failure is None:
            return
        try:
            raise failure
        finally:
            # A kept error would keep, by its traceback, the request until a garbage collection.
            del failure

    def time_chunks(self, note: Callable[[float], None]) -> None:
        """Pass the seconds between two chunks of the streamed answer to `note`, from the next chunk on."""
        if not self._ended:
            self._connection.pass_on(TimedChunks(self, note))

    def _end_of_stream(self) -> asyncio.Future[None]:
        """Return a future that is set at the end, or earlier at the first content if no client has it yet."""
        self._waiting = asyncio.get_running_loop().create_future()
        if self._ended:
            self._waiting.set_result(None)
        return self._waiting

    def receive(self, body: bytes, last: bool) -> None:
        """Relay what the engine has sent. The last part stays here, to be sent together with the response's end."""
        try:
            passed = self.stream.feed(body)
        except HitsUnreadableError:
            self._fail(self._attempt.failed(HTTP_5XX, self.status))
            return
        except Exception as error:  # noqa: BLE001 - the edge of a callback: the request's task reports the fault
            self._fail(error)
            return
        client, progress = self._client, self._progress
        if client is None or progress is None:
            self._hold(passed)
            return
        self._guard.silent_s = 0.0
        progress.chunks += 1
        if last:
            self.last = passed
        elif passed:
            client.write(passed)

    def _fail(self, failure: Exception) -> None:
        self._failure = failure
        self._connection.abort()
        self.end(None)

    def _hold(self, passed: bytes) -> None:
        """Keep the beginning until the client's response has started."""
        self._first += passed
        if self.stream.begun or self.stream.error is not None:
            self._wake()
        if len(self._first) > MAX_HELD_BYTES:
            self._connection.pause()

    def end(self, broken: str | None) -> None:
        """Take the end of the answer."""
        self._ended = True
        if broken is not None:
            self._failure = self._failure or ConnectionBrokenError(broken)
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def pause(self) -> None:
        """Let the engine wait for the client."""
        self._guard.sending = True
        self._connection.pause()

    def resume(self) -> None:
        """Continue: the client has read."""
        self._guard.sending = False
        self._guard.progress()
        self._connection.resume()

    async def whole(self, limit: int, kind: str = HTTP_5XX) -> bytes:
        """Return the complete body. A body that exceeds `limit` bytes or is no answer fails the attempt as `kind`."""
        if self._error is not None:
            return self._error.body
        body = await self._connection.read(limit, self._guard.progress)
        if len(body) > limit:
            raise self._attempt.failed(kind, proves=True)
        return self._read(body, kind) if self.status == 200 else body

    def _read(self, body: bytes, kind: str) -> bytes:
        """Return the client's part of a complete answer with status 200."""
        try:
            if not self._is_json and self._attempt.request.endpoint.answers_json:
                raise UnreadableAnswerError
            self.used, error = read_whole(body) if self._is_json else (None, None)
        except UnreadableAnswerError:
            raise self._attempt.failed(kind, self.status, proves=True) from None
        if error is None:
            if self._is_json and (facts := self._attempt.request.facts) is not None:
                facts.read(body)
            return body
        self._take_error(error)
        return error.body

    def _take_error(self, error: EngineError) -> None:
        """Become the error's complete answer; raise AttemptFailedError if another engine might not give it."""
        rejection = EngineRejection(error.status, error.body, [JSON])
        _blame(self._attempt, rejection)
        self.status, self.headers, self.streams, self._error = error.status, [JSON], False, error


class TimedChunks:
    """Receives an answer for its receiver and measures the time between chunks. Mutable: when the last one came.

    Tokens of one step of the engine come in one chunk. What ends a stream holds no token.
    """

    def __init__(self, receiver: EngineAnswer, note: Callable[[float], None]) -> None:
        self._receiver, self._note = receiver, note
        self._last_s = monotonic()

    def receive(self, body: bytes, last: bool) -> None:
        """Pass on what the engine has sent, and note the time since the chunk before."""
        self._receiver.receive(body, last)
        if body.endswith(b"\n\n") and not (last or any(mark in body for mark in _NO_TOKEN)):
            now = monotonic()
            self._note(now - self._last_s)
            self._last_s = now

    def end(self, broken: str | None) -> None:
        """Pass on the end of the answer."""
        self._receiver.end(broken)


class EngineTransport:
    """Sends one attempt at a time. It has no state between attempts."""

    def __init__(self, settings: RelaySettings, connections: EngineConnections) -> None:
        self._settings = settings
        self._connections = connections

    @asynccontextmanager
    async def answer(self, attempt: Attempt) -> AsyncIterator[EngineAnswer]:
        """Yield the engine's answer; raise AttemptFailedError if there is none, or if it ends early."""
        engine, request, begun_s = attempt.engine, attempt.request, monotonic()
        payload, of_payload = request.payload()
        address = engine_address(engine.entry.url)
        if isinstance(payload, bytes):
            of_payload = {"content-length": str(len(payload))}
        head = _request_head(address, request.endpoint.path, {**engine.addressed(request.headers), **of_payload})
        try:
            # No limit on the answer: the guard ends it by evidence (decision 57).
            with ProgressGuard(attempt, attempt.limits) as guard:
                connection = await self._connections.take(address.origin, self._settings.connect_s)
                try:
                    connection.send(head, payload)
                    answered = await connection.head()
                    await _reject(attempt, connection, answered)
                    yield EngineAnswer(attempt, connection, answered, guard)
                finally:
                    await self._connections.give_back(address.origin, connection)
        except _BROKEN as error:
            raise _broken(attempt, error, begun_s) from None


def _request_head(address: EngineUrl, path: str, headers: Mapping[str, str]) -> bytes:
    """Return the head of a request; raise ValueError if a header would begin another line."""
    lines = [f"POST {address.path}{path} HTTP/1.1", f"host: {address.host}", "accept: */*"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if any("\r" in line or "\n" in line or "\0" in line for line in lines):
        raise ValueError("a header contains a line end")
    return "\r\n".join([*lines, "", ""]).encode()


async def _reject(attempt: Attempt, connection: RequestConnection, head: AnswerHead) -> None:
    """Raise AttemptFailedError for an answer that another engine might not give."""
    status, encoded = head.status, is_encoded(head.headers)
    if status == 200 and not encoded:
        return
    # A redirect would take the prompt and the engine's key to another address.
    if 300 <= status < 400 or status < 200 or encoded:
        raise attempt.failed(HTTP_5XX, status, proves=True)
    if status >= 400 and (attempt.request.handed_over or blame_of(status)):
        body = await connection.read(MAX_BODY_BYTES)
        _blame(attempt, rejection_of(status, head.headers, body[:MAX_BODY_BYTES]))


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
