"""Sends one try to its engine and yields the answer: status, bytes as they come, and usage. It keeps no books."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic

import aiohttp
from msgspec.structs import replace

from gateway.engines.breaker import CONNECT, HTTP_4XX, HTTP_5XX, NO_PROGRESS, THROTTLED, TIMEOUT
from gateway.engines.engine_rejection import BUSY, REJECTIONS, passed_headers, read_rejection
from gateway.formats.engine_usage import StreamUsage
from gateway.formats.hit_figures import HitsUnreadableError
from gateway.formats.stream_preamble import Preamble
from gateway.proxy.attempt import HANDOFF, Attempt, AttemptFailedError, AttemptFailure, RelaySettings
from gateway.proxy.progress_guard import EngineSilentError, ProgressGuard
from gateway.requests.kv_answer import TRANSFER_MARK, take_outcome
from kvstore.connector.engine_params import KvOutcome

_BROKEN = (aiohttp.ClientError, OSError, EngineSilentError, asyncio.IncompleteReadError)


class EngineAnswer:
    """An answer whose head is here. Iterating yields the client's bytes of a streamed one, a chunk as it comes."""

    def __init__(self, attempt: Attempt, response: aiohttp.ClientResponse, guard: ProgressGuard) -> None:
        self.status = response.status
        self.headers = passed_headers(response)
        self.streams = response.status == 200 and response.content_type == "text/event-stream"
        request = attempt.request
        self.usage = StreamUsage(
            strip=request.strip_usage,
            cached_tokens=request.cached_tokens,
            mark=TRANSFER_MARK,
            take=self._take if request.orders else None,
        )
        """What the engine says it used, complete once the stream has ended."""
        self.loaded: KvOutcome | None = None
        """What its KV connector says of the order, likewise."""
        self._preamble = Preamble(request.endpoint.preamble)
        self._attempt = attempt
        self._chunks = response.content.iter_any()
        self._guard = guard
        self._passed = b""

    @property
    def begun(self) -> bool:
        """Whether the engine has made a token."""
        return self._preamble.over

    def __aiter__(self) -> EngineAnswer:
        return self

    async def __anext__(self) -> bytes:
        """Return what goes on to the client, nothing where it is held back; whoever asks again has passed it on."""
        if self._passed:
            self._guard.sending = False
            self._guard.progress()
        chunk = await anext(self._chunks)
        if not self._preamble.over:
            chunk = self._preamble.feed(chunk)
            if not self._preamble.over:
                return b""
        self._guard.progress()
        try:
            self._passed = self.usage.feed(chunk)
        except HitsUnreadableError:
            raise self._attempt.failed(HTTP_5XX, self.status) from None
        self._guard.sending = bool(self._passed)
        return self._passed

    def _take(self, data: bytes) -> bytes:
        left, outcome = take_outcome(data)
        self.loaded = outcome or self.loaded
        return left

    async def whole(self, limit: int, kind: str = HTTP_5XX) -> bytes:
        """Return the whole body; one above `limit` bytes fails the try as `kind`."""
        body = bytearray()
        async for chunk in self._chunks:
            self._guard.progress()
            body += chunk
            if len(body) > limit:
                raise self._attempt.failed(kind, proves=True)
        return bytes(body)


class EngineTransport:
    """One try after the other; keeps no state between them."""

    def __init__(self, settings: RelaySettings) -> None:
        self._settings = settings

    @asynccontextmanager
    async def answer(self, attempt: Attempt) -> AsyncIterator[EngineAnswer]:
        """Yield the engine's answer; raises AttemptFailedError where there is none, or it breaks off in the block."""
        engine, request, begun_s = attempt.engine, attempt.request, monotonic()
        try:
            with ProgressGuard(attempt, first_s=attempt.first_byte_s, idle_s=self._settings.idle_s) as guard:
                async with engine.session.post(
                    engine.entry.url.rstrip("/") + request.endpoint.path,
                    data=request.payload(),
                    headers=engine.addressed(request.headers),
                    allow_redirects=False,
                    timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._settings.connect_s),
                ) as response:
                    await _reject(attempt, response)
                    yield EngineAnswer(attempt, response, guard)
        except _BROKEN as error:
            raise _broken(attempt, error, begun_s) from None


async def _reject(attempt: Attempt, response: aiohttp.ClientResponse) -> None:
    """Raise AttemptFailedError for an answer that another engine may not give."""
    status, handed_over = response.status, attempt.request.handed_over
    if (status >= 500 and status not in BUSY) or status < 200 or 300 <= status < 400:
        response.close()
        raise attempt.failed(HTTP_5XX, status, proves=True)
    # A decode engine's 404 may mean the KV that it was to fetch.
    if status in REJECTIONS and not (handed_over and status == 404):
        rejection = await read_rejection(response)
        rejection = replace(rejection, body=attempt.shown(rejection.body, status))
        kind = THROTTLED if status in BUSY else HTTP_4XX
        raise AttemptFailedError(AttemptFailure(kind, attempt.engine.entry.engine_id, status, True, rejection))
    if handed_over and status >= 400:
        response.close()
        raise attempt.failed(HANDOFF, status)


def _broken(attempt: Attempt, error: BaseException, begun_s: float) -> AttemptFailedError:
    """Return what a connection that failed, or an engine that says nothing, means for the try."""
    engine, partner = attempt.engine, attempt.partner
    if partner is not None and partner.breaker.lost and not engine.breaker.lost:
        return AttemptFailedError(AttemptFailure(CONNECT, partner.entry.engine_id))
    timed_out = isinstance(error, TimeoutError | EngineSilentError)
    proves = not timed_out or engine.lag.vouches(begun_s, monotonic())
    if not isinstance(error, EngineSilentError) or engine.lost:
        return attempt.failed(CONNECT, proves=proves)
    if not attempt.stuck:
        return attempt.failed(TIMEOUT, proves=proves)
    culprit = engine if engine.stuck or partner is None else partner
    return AttemptFailedError(AttemptFailure(NO_PROGRESS, culprit.entry.engine_id, proves=proves))
