"""Clients of the decision API, and a transport that lets an OpenAI client send its requests directly to engines.

Usage: `OpenAI(…, http_client=httpx2.Client(transport=HeadwayTransport(client)))`. The code is written once, as
coroutines. Those of a blocking client never suspend.
"""

from __future__ import annotations

import asyncio
import functools
import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import suppress
from inspect import isawaitable
from typing import Any, TypeVar
from urllib.parse import quote

from headway_client.decisions import (
    ENDPOINTS,
    AnswerTail,
    Decisions,
    RejectedError,
    Route,
    answer_headers,
    forwarded,
    model_of,
)

try:
    import httpx2 as httpx
except ImportError:  # older openai packages bring httpx, which has the same interface
    import httpx  # type: ignore[import-not-found,no-redef,unused-ignore]

__all__ = ["AsyncHeadway", "AsyncHeadwayTransport", "Headway", "HeadwayTransport", "httpx", "run_blocking"]
# Without accept-encoding engines compress nothing, so that AnswerTail can read the answer.
_OWNED_HEADERS = ("host", "authorization", "x-api-key", "content-length", "accept-encoding", "x-data-parallel-rank")
_AMONG = "x-gateway-destination-endpoint-subset"
T = TypeVar("T")


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends; return its result."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    raise RuntimeError("a blocking client waited for an event loop")


def _blocking(call: Callable[..., Coroutine[Any, Any, T]]) -> Callable[..., T]:
    return functools.wraps(call)(lambda self, *args, **options: run_blocking(call(self.calls, *args, **options)))


async def _waited(result: Any) -> Any:
    return await result if isawaitable(result) else result


class AsyncHeadway:
    """Client that requests decisions and reports outcomes on one event loop."""

    def __init__(
        self,
        url: str,
        key: str,
        *,
        engines: Iterable[str] = (),
        late_s: float = 1.0,
        http: Any = None,
        door: str = "client",
    ) -> None:
        """Use `engines` (addresses) as fallback until a decision names others. `late_s` is the timeout of each call.

        With the scope forward, `key` decides by the keys that clients send; with route, by itself. Records name `door`.
        """
        self.decisions, self.lost_reports, self._api = Decisions(engines), 0, f"{url.rstrip('/')}/api/v1/"
        self._door = {"x-headway-door": door}
        self._http: Any = (http or httpx.AsyncClient)(headers={"Authorization": f"Bearer {key}"}, timeout=late_s)

    async def decide(
        self,
        request: Mapping[str, Any],
        *,
        path: str = "",
        patience_s: float = 0.0,
        headers: Mapping[str, str] | None = None,
        among: Iterable[str] | None = None,
    ) -> Route:
        """Return the engine for a request: a chat or completion, unless `path` is another one of ENDPOINTS.

        `headers` are its client's, of which those with facts are sent: session, agent, objectives, trace, key.
        `among` are the addresses (`host:port`) that may be chosen; None: all. A rejected request is retried after its
        Retry-After if that is within `patience_s`. Otherwise raise RejectedError.
        """
        until, sent = time.monotonic() + patience_s, {**forwarded(headers or {}), **self._door}
        sent |= {"x-original-uri": path} if path else {}
        sent |= {_AMONG: ",".join(among)} if among is not None else {}
        while True:
            try:
                return await self._ask(request, sent)
            except RejectedError as error:
                if error.retry_after_s is None or time.monotonic() + error.retry_after_s > until:
                    raise
                blocks = isinstance(self._http, httpx.Client)
                # time.sleep returns None, which `_waited` passes through, so a blocking client never suspends.
                await _waited((time if blocks else asyncio).sleep(error.retry_after_s))

    async def report(self, route: Route, verb: str, usage: Mapping[str, int] | None = None) -> None:
        """Report the outcome of a request: first_token, complete (with usage), fail, or cancel. Never raises."""
        if verb == "fail":
            self.decisions.avoid(route.engine_url, time.monotonic())
        # A gateway that just failed to answer would only delay the caller by another timeout.
        if route.decision_id and self.decisions.away(time.monotonic()):
            self.lost_reports += 1
        elif route.decision_id:
            answer = await self._sent("POST", f"requests/{route.decision_id}/{verb}", dict(usage or {}))
            self.lost_reports += answer is None

    async def advise(self, session_id: str, **fields: Any) -> str:
        """Announce a session's next request (fields: model, expected_arrival_s, priority). Never raises.

        Return `prefetching`, `reserved`, or the reason why nothing was done; empty if Headway did not answer or a limit
        was reached.
        """
        answer = await self._sent("POST", "advisories", {"session_id": session_id, **fields})
        return str(answer.json()["state"]) if answer is not None and answer.status_code == 202 else ""

    async def withdraw(self, session_id: str) -> None:
        """Withdraw the advisory of a session that will not send its request. Never raises."""
        await self._sent("DELETE", f"advisories/{quote(session_id, safe='')}")

    async def advisory_token(self, session_id: str, expires_in_s: float = 900.0) -> str:
        """Return a token that lets a browser send advisories for this session only; raise RejectedError."""
        body = {"session_id": session_id, "expires_in_s": expires_in_s}
        if (answer := await self._call("POST", "advisory_tokens", body)).status_code != 201:
            raise RejectedError(answer.status_code, answer.content)
        return str(answer.json()["token"])

    async def aclose(self) -> None:
        """Close the connections to Headway."""
        await self._http.aclose()

    async def _ask(self, request: Mapping[str, Any], headers: dict[str, str]) -> Route:
        model, now = model_of(request), time.monotonic()
        if self.decisions.away(now):
            return self.decisions.fallback(model, "away", now)
        try:
            # Not queued at the gateway: a wait beyond `late_s` would count as no answer, and `decide` retries instead.
            answer = await self._call("POST", "route", {**request, "wait": False}, headers=headers)
        except httpx.TransportError as error:
            late = isinstance(error, httpx.TimeoutException)
            return self.decisions.fallback(model, "late" if late else "down", time.monotonic())
        return self.decisions.answered(model, answer.status_code, answer.content, answer.headers, time.monotonic())

    async def _call(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        return await _waited(self._http.request(method, self._api + path, json=body, **options))

    async def _sent(self, *call: Any) -> Any:
        with suppress(httpx.TransportError):
            return await self._call(*call)


class Headway:
    """AsyncHeadway with blocking calls. Threads can share it."""

    def __init__(self, url: str, key: str, **options: Any) -> None:
        self.calls = AsyncHeadway(url, key, http=httpx.Client, **options)
        self.decisions, self.close = self.calls.decisions, self.calls._http.close

    decide, report = _blocking(AsyncHeadway.decide), _blocking(AsyncHeadway.report)
    advise, withdraw = _blocking(AsyncHeadway.advise), _blocking(AsyncHeadway.withdraw)
    advisory_token = _blocking(AsyncHeadway.advisory_token)


class HeadwayTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Sends inference requests (ENDPOINTS) to engines and reports their outcomes. Other requests are sent unchanged."""

    def __init__(self, client: AsyncHeadway | Headway, engine_api_key: str = "", inner: Any = None) -> None:
        blocks = isinstance(client, Headway)
        self._calls = client.calls if isinstance(client, Headway) else client
        self._own = {"authorization": f"Bearer {engine_api_key}"} if engine_api_key else {}
        self._inner: Any = inner or (httpx.HTTPTransport() if blocks else httpx.AsyncHTTPTransport())
        self._send: Any = getattr(self._inner, "handle_request" if blocks else "handle_async_request")

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        path = next((item for item in ENDPOINTS if request.url.path.endswith(item)), "")
        if not path:
            return await _waited(self._send(request))  # type: ignore[no-any-return]
        body = request.read() if isinstance(request.stream, httpx.SyncByteStream) else await request.aread()
        try:
            route = await self._calls.decide(json.loads(body), path=path, headers=request.headers)
        except RejectedError as error:
            headers = {"content-type": "application/json", **error.headers}
            return httpx.Response(error.status, headers=headers, content=error.body)
        # The caller's key is for Headway; engines get their own, or none.
        kept = {name: value for name, value in request.headers.items() if name not in _OWNED_HEADERS}
        headers, body = {**kept, **self._own, **route.headers}, route.merged(body)
        options: dict[str, Any] = {"headers": headers, "content": body, "extensions": request.extensions}
        try:
            response = await _waited(self._send(httpx.Request("POST", route.engine_url + path, **options)))
        except BaseException as error:
            # Cancelled or failed: the gateway must receive the end of every route that it gave.
            await self._calls.report(route, "fail" if isinstance(error, httpx.TransportError) else "cancel")
            raise
        response.headers.update(answer_headers(route, request.headers))
        response.stream = _ReportedStream(response, self._calls, route)
        return response  # type: ignore[no-any-return]

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return run_blocking(self.handle_async_request(request))

    async def aclose(self) -> None:
        await self._inner.aclose()

    def close(self) -> None:
        self._inner.close()


AsyncHeadwayTransport = HeadwayTransport


class _ReportedStream(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The body of an answer in transit. Mutable: its tail, and whether its end was reported."""

    def __init__(self, response: Any, calls: AsyncHeadway, route: Route) -> None:
        self._stream, self._status, self._calls, self._route = response.stream, response.status_code, calls, route
        self._answer, self._reported = AnswerTail(), False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._stream:
                yield await self._seen(chunk)
        except httpx.TransportError:
            await self._end("fail")
            raise
        await self._end("complete")

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from (run_blocking(self._seen(chunk)) for chunk in self._stream)
        except httpx.TransportError:
            run_blocking(self._end("fail"))
            raise
        run_blocking(self._end("complete"))

    async def aclose(self) -> None:
        await self._stream.aclose()
        await self._end("cancel")

    def close(self) -> None:
        self._stream.close()
        run_blocking(self._end("cancel"))

    async def _seen(self, chunk: bytes) -> bytes:
        if self._answer.first_token(chunk) and self._status < 400:
            await self._calls.report(self._route, "first_token")
        return chunk

    async def _end(self, verb: str) -> None:
        if self._status >= 400:
            verb = "fail" if self._status >= 500 else "cancel"
        elif self._answer.failed:
            verb = "fail"
        elif self._answer.whole and verb == "cancel":
            verb = "complete"  # the openai package stops reading after [DONE]
        if not self._reported:
            self._reported = True
            await self._calls.report(self._route, verb, self._answer.usage() if verb == "complete" else None)
