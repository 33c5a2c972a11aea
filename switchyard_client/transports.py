"""Transports that let a client of the OpenAI API send each request to the engine that Switchyard chooses.

`openai.OpenAI(base_url=URL + "/v1", api_key="-", http_client=httpx2.Client(transport=SwitchyardTransport(client)))`
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

from typing_extensions import override

from switchyard_client.clients import AsyncSwitchyard, Switchyard, httpx, run_blocking
from switchyard_client.decisions import ENDPOINTS, AnswerTail, RejectedError, Route

_OWNED_HEADERS = ("host", "authorization", "content-length", "accept-encoding", "x-data-parallel-rank")


class AsyncSwitchyardTransport(httpx.AsyncBaseTransport):
    """Sends requests for inference (ENDPOINTS) to engines and reports on them; others go where they are addressed."""

    def __init__(self, client: AsyncSwitchyard, engine_api_key: str = "", inner: Any = None) -> None:
        self._client = client
        self._engine_key = engine_api_key
        self._inner: Any = inner or httpx.AsyncHTTPTransport()

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request."""
        path = next((each for each in ENDPOINTS if request.url.path.endswith(each)), "")
        if not path:
            return await self._send(request)
        body = await self._read(request)
        try:
            route = await self._client.decide(json.loads(body), path=path)
        except RejectedError as error:
            return _rejection(error)
        try:
            response = await self._send(self._to_engine(request, route, path, body))
        except BaseException as error:
            await self._client.report(route, "fail" if isinstance(error, httpx.TransportError) else "cancel")
            raise
        response.stream = _ReportedStream(response, self._client, route)
        return response

    @override
    async def aclose(self) -> None:
        """Close the connections to engines."""
        await self._inner.aclose()

    async def _send(self, request: httpx.Request) -> httpx.Response:
        return await self._inner.handle_async_request(request)  # type: ignore[no-any-return]

    async def _read(self, request: httpx.Request) -> bytes:
        return await request.aread()

    def _to_engine(self, request: httpx.Request, route: Route, path: str, body: bytes) -> httpx.Request:
        kept = {name: value for name, value in request.headers.items() if name not in _OWNED_HEADERS}
        if self._engine_key:
            kept["authorization"] = f"Bearer {self._engine_key}"
        return httpx.Request(
            "POST", route.engine_url + path, headers=kept, content=route.merged(body), extensions=request.extensions
        )


class SwitchyardTransport(AsyncSwitchyardTransport, httpx.BaseTransport):
    """As AsyncSwitchyardTransport, for blocking clients."""

    def __init__(self, client: Switchyard, engine_api_key: str = "", inner: Any = None) -> None:
        super().__init__(client.calls, engine_api_key, inner or httpx.HTTPTransport())

    @override
    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request."""
        return run_blocking(self.handle_async_request(request))

    @override
    def close(self) -> None:
        """Close the connections to engines."""
        self._inner.close()

    @override
    async def _send(self, request: httpx.Request) -> httpx.Response:
        return self._inner.handle_request(request)  # type: ignore[no-any-return]

    @override
    async def _read(self, request: httpx.Request) -> bytes:
        return request.read()


def _rejection(error: RejectedError) -> httpx.Response:
    after = {} if error.retry_after_s is None else {"retry-after": f"{error.retry_after_s:.0f}"}
    return httpx.Response(error.status, headers={"content-type": "application/json", **after}, content=error.body)


class _ReportedStream(httpx.SyncByteStream, httpx.AsyncByteStream):
    """An answer on its way. Mutable: its tail, and whether its end was told."""

    def __init__(self, response: httpx.Response, client: AsyncSwitchyard, route: Route) -> None:
        self._stream: Any = response.stream
        self._status = response.status_code
        self._client = client
        self._route = route
        self._answer = AnswerTail()
        self._told = False

    @override
    async def __aiter__(self) -> AsyncIterator[bytes]:
        verb = "cancel"
        try:
            async for chunk in self._chunks():
                if self._answer.first_token(chunk) and self._status < 400:
                    await self._client.report(self._route, "first_token")
                yield chunk
            verb = "complete"
        except httpx.TransportError:
            verb = "fail"
            raise
        finally:
            await self._end(verb)

    async def _chunks(self) -> AsyncIterator[bytes]:
        if hasattr(self._stream, "__aiter__"):
            async for chunk in self._stream:
                yield chunk
        else:
            for chunk in self._stream:
                yield chunk

    async def _end(self, verb: str) -> None:
        if not self._told:
            self._told = True
            if self._status >= 400:
                verb = "fail" if self._status >= 500 else "cancel"
            elif verb == "cancel" and self._answer.whole:
                verb = "complete"  # the openai package reads no further
            await self._client.report(self._route, verb, self._answer.usage() if verb == "complete" else None)

    @override
    async def aclose(self) -> None:
        await self._stream.aclose()
        await self._end("cancel")

    @override
    def __iter__(self) -> Iterator[bytes]:
        chunks = self.__aiter__()
        try:
            while True:
                yield run_blocking(chunks.__anext__())  # type: ignore[arg-type]
        except StopAsyncIteration:
            return
        finally:
            run_blocking(chunks.aclose())  # type: ignore[attr-defined]

    @override
    def close(self) -> None:
        self._stream.close()
        run_blocking(self._end("cancel"))
