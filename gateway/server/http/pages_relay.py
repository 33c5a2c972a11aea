"""Relays all other requests and websockets to the process that serves pages.

That process listens on a Unix socket. While it is down, each request gets status 503 immediately, and the gateway's own
paths still work.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from urllib.parse import quote

import aiohttp
from yarl import URL

from gateway.base.asgi_types import Message, Receive, Scope, Send
from gateway.server.http.connection_limit import MOST
from gateway.server.http.forwarded_client import HEADER as CLIENT
from gateway.server.http.forwarded_client import client_header
from gateway.server.http.http_exchange import NOSNIFF
from gateway.server.http.openai_error import error_body
from gateway.server.http.request_head import head_of

MAX_CONNECTIONS = MOST
"""Limit of connections to the process that serves pages, including websockets: as many as clients can have here, so
that slow clients do not block others. Further requests wait CONNECT_S for a connection, then get status 503.
"""
CONNECT_S = 5.0
ANSWER_S = 120.0
"""Longer than any page or upload waits for a byte of the response."""
_RETRY_S = b"2"
_GONE = 1012
"""Close code of a websocket whose server restarts."""
_NEVER_SENT = (None, 1005, 1006, 1015)
"""Codes that mean that no code was sent. They must not be sent."""

# RFC 9110, §7.6.1: a relay does not pass them on.
_OF_ONE_CONNECTION = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"expect")
)
_DROPPED = _OF_ONE_CONNECTION | {CLIENT, b"x-request-id"}
_UNREACHABLE = (aiohttp.ClientError, OSError, TimeoutError)
# A "#" would begin a fragment, which no client sends.
_SAFE = "".join(map(chr, range(0x21, 0x7F))).replace("#", "")

_PAGE = b"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta http-equiv="refresh" content="2"><title>Console unavailable</title></head>
<body><h1>The console is starting</h1><p>Requests to engines are served. This page reloads by itself.</p></body>
</html>
"""
_SENTENCE = "The console and the management API are unavailable; retry in a few seconds."

Headers = list[tuple[bytes, bytes]]


class PagesGoneError(RuntimeError):
    """The process that serves pages ended during its response, which cannot be completed."""


class _ClientLeftError(Exception):
    """The client closed the connection before its request was complete."""


class PagesRelay:
    """An ASGI app for requests and websockets. `start` and `stop` run on the event loop that serves them."""

    def __init__(self, socket_path: Path) -> None:
        self._path = socket_path
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Create the client session. The first request opens the first connection."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.UnixConnector(str(self._path), limit=MAX_CONNECTIONS, keepalive_timeout=30.0),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            # The other side gets the client's headers, not aiohttp's.
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_S, sock_connect=CONNECT_S, sock_read=ANSWER_S),
        )

    async def stop(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or websocket."""
        if self._session is None:
            raise RuntimeError("the relay has not been started")
        if scope["type"] == "http":
            await self._http(self._session, scope, receive, send)
        else:
            await self._websocket(self._session, scope, receive, send)

    async def _http(self, session: aiohttp.ClientSession, scope: Scope, receive: Receive, send: Send) -> None:
        body, answer = _Body(receive), _Answer(send)
        try:
            async with session.request(
                scope["method"],
                _url(scope),
                headers=_request_headers(scope),
                data=body.chunks() if _has_body(scope["headers"]) else None,
                allow_redirects=False,
            ) as response:
                body.answered_by = response
                await answer.start(response.status, _response_headers(response))
                async for chunk in response.content.iter_any():
                    await answer.chunk(chunk)
                await answer.end()
        except _ClientLeftError:
            return
        except _UNREACHABLE as error:
            # aiohttp wraps what a body raises.
            if isinstance(body.failure, _ClientLeftError):
                return
            if body.failure is not None:
                # The edge rejected the body; the other side only saw that it ended.
                raise body.failure from None
            if answer.started:
                raise PagesGoneError(type(error).__name__) from None
            await _unavailable(scope, answer)

    async def _websocket(self, session: aiohttp.ClientSession, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        try:
            socket = await session.ws_connect(
                _url(scope),
                headers=_request_headers(scope),
                protocols=scope.get("subprotocols", ()),
                max_msg_size=0,
                timeout=aiohttp.ClientWSTimeout(ws_receive=None, ws_close=2.0),
            )
        except _UNREACHABLE:
            # It was rejected, or no process serves it; the client sees 403 and tries again.
            await send({"type": "websocket.close"})
            return
        async with socket:
            await send({"type": "websocket.accept", "subprotocol": socket.protocol, "headers": []})
            await _first_end(_from_client(socket, receive), _to_client(socket, send))


class _Body:
    """A request's body in transit. Mutable: why it ended early, and the response that began before its end."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.failure: Exception | None = None
        self.answered_by: aiohttp.ClientResponse | None = None

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives."""
        more = True
        while more:
            try:
                message = await self._receive()
                if message["type"] != "http.request":
                    raise _ClientLeftError
            except Exception as error:
                # Kept as it is: aiohttp wraps what a body raises, and the client must get the original.
                self.failure = error
                if self.answered_by is not None:
                    # Its end would never come.
                    self.answered_by.close()
                raise
            more = message.get("more_body", False)
            if message.get("body"):
                yield message["body"]


class _Answer:
    """The response in transit to the client. Mutable: whether it has begun."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False

    async def start(self, status: int, headers: Headers) -> None:
        self.started = True
        await self._pass({"type": "http.response.start", "status": status, "headers": headers})

    async def chunk(self, data: bytes) -> None:
        await self._pass({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self, data: bytes = b"") -> None:
        await self._pass({"type": "http.response.body", "body": data, "more_body": False})

    async def _pass(self, message: Message) -> None:
        try:
            await self._send(message)
        except OSError:
            raise _ClientLeftError from None


async def _unavailable(scope: Scope, answer: _Answer) -> None:
    is_page = b"text/html" in head_of(scope).headers.get(b"accept", b"")
    body = _PAGE if is_page else error_body(503, _SENTENCE, "console_unavailable")
    kind = b"text/html; charset=utf-8" if is_page else b"application/json"
    headers = [
        (b"content-type", kind),
        NOSNIFF,
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
        (b"content-security-policy", b"default-src 'none'"),
        (b"retry-after", _RETRY_S),
    ]
    await answer.start(503, headers)
    await answer.end(b"" if scope["method"] == "HEAD" else body)


async def _from_client(socket: aiohttp.ClientWebSocketResponse, receive: Receive) -> None:
    while True:
        message = await receive()
        if message["type"] != "websocket.receive":
            code = message.get("code")
            await socket.close(code=aiohttp.WSCloseCode.GOING_AWAY if code in _NEVER_SENT else code)
            return
        text = message.get("text")
        await (socket.send_str(text) if text is not None else socket.send_bytes(message["bytes"]))


async def _to_client(socket: aiohttp.ClientWebSocketResponse, send: Send) -> None:
    async for message in socket:
        if message.type is aiohttp.WSMsgType.TEXT:
            await send({"type": "websocket.send", "text": message.data})
        elif message.type is aiohttp.WSMsgType.BINARY:
            await send({"type": "websocket.send", "bytes": message.data})
    code = socket.close_code
    await send({"type": "websocket.close", "code": _GONE if code in _NEVER_SENT else code})


async def _first_end(*ways: object) -> None:
    """Run both directions until one ends. A broken connection ends its direction without an error."""
    tasks = [asyncio.ensure_future(way) for way in ways]  # type: ignore[call-overload]  # coroutines
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception) and not isinstance(result, _UNREACHABLE):
                raise result


def _url(scope: Scope) -> URL:
    query: bytes = scope["query_string"]
    target = scope["raw_path"] + (b"?" + query if query else b"")
    # encoded=True keeps yarl from normalizing the client's path.
    return URL("http://pages" + quote(target, safe=_SAFE), encoded=True)


def _has_body(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    return any(name == b"transfer-encoding" or (name == b"content-length" and value != b"0") for name, value in headers)


def _request_headers(scope: Scope) -> list[tuple[str, str]]:
    # aiohttp makes a handshake of its own.
    kept = [field for field in _kept(scope["headers"]) if not field[0].startswith(b"sec-websocket-")]
    own = (client_header(scope), (b"x-request-id", head_of(scope).request_id.encode()))
    return [(name.decode("latin-1"), _text(value)) for name, value in (*kept, *own)]


def _response_headers(response: aiohttp.ClientResponse) -> Headers:
    # The server in front of us sets a date of its own.
    return [field for field in _kept(response.raw_headers) if field[0] != b"date"]


def _kept(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Return the end-to-end headers in lower case."""
    lower = [(name.lower(), value) for name, value in headers]
    # Fields that Connection names stay: otherwise, a client could remove headers of a proxy in front of us.
    return [(name, value) for name, value in lower if name not in _DROPPED]


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
