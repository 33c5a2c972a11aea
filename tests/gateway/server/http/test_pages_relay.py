"""Requests outside the gateway's paths are relayed unchanged both ways, and get 503 if no process serves pages."""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvicorn

from gateway.base.asgi_types import AsgiApp, Message, Receive, Scope, Send
from gateway.server.http.edge import Edge, EdgeSettings
from gateway.server.http.forwarded_client import HEADER, ForwardedClient
from gateway.server.http.http_protocol import GuardedHttpProtocol
from gateway.server.http.pages_relay import PagesRelay
from tests.gateway.logged_errors import logged_errors
from tests.gateway.ports import listen
from tests.gateway.raw_http import RawConnection
from tests.patience import PATIENCE_S, until

BODY_LIMIT = 100_000


class Pages:
    """An app that stores its requests and responds by path."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []
        self.bodies: list[bytes] = []
        self.go_on = asyncio.Event()
        self.left = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        if scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
            return
        if scope["path"] == "/early":
            await send({"type": "http.response.start", "status": 403, "headers": [(b"content-type", b"text/plain")]})
            await send({"type": "http.response.body", "body": b"no", "more_body": True})
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self.bodies.append(body)
        if scope["path"] == "/early":
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        headers = [(b"content-type", b"text/plain"), (b"set-cookie", b"a=1"), (b"set-cookie", b"b=2")]
        await send({"type": "http.response.start", "status": 207, "headers": headers})
        if scope["path"] == "/slow":
            await send({"type": "http.response.body", "body": b"first ", "more_body": True})
            await self.go_on.wait()
        await send({"type": "http.response.body", "body": b"whole", "more_body": False})

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        if scope["path"] == "/ws/closed":
            await send({"type": "websocket.close"})
            return
        await send({"type": "websocket.accept", "subprotocol": next(iter(scope["subprotocols"]), None)})
        while (message := await receive())["type"] == "websocket.receive":
            if message.get("text") == "end":
                await send({"type": "websocket.close", "code": 4001})
                return
            await send(_echo(message))
        self.left.set()


def _echo(message: Message) -> Message:
    text = message.get("text")
    return {"type": "websocket.send", "text": text} if text is not None else {**message, "type": "websocket.send"}


@asynccontextmanager
async def serving(app: AsgiApp, listener: socket.socket, **config: Any) -> AsyncIterator[uvicorn.Server]:
    """Serve on the socket until the block ends."""
    settings = uvicorn.Config(
        app, lifespan="off", log_config=None, proxy_headers=False, timeout_graceful_shutdown=1, **config
    )
    server = uvicorn.Server(settings)
    task = asyncio.create_task(server._serve([listener]))
    while not server.started:
        await asyncio.sleep(0.005)
    try:
        yield server
    finally:
        server.should_exit = True
        await task


@asynccontextmanager
async def pages_at(path: Path, pages: Pages) -> AsyncIterator[uvicorn.Server]:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    async with serving(ForwardedClient(pages), listener) as server:
        yield server


class Relayed:
    """A relay in front of a pages process that starts and stops."""

    def __init__(self, url: str, path: Path, client: aiohttp.ClientSession) -> None:
        self.url = url
        self.path = path
        self.client = client
        self.pages = Pages()
        self.begun = 0
        """Requests and websockets that came to the relay."""
        self.server: uvicorn.Server | None = None

    @property
    def over(self) -> bool:
        """Return whether it had a request and has none in progress."""
        return self.begun > 0 and self.server is not None and not self.server.server_state.tasks


@pytest.fixture
async def away() -> AsyncIterator[Relayed]:
    """Return a relay without a pages process behind it."""
    listener = listen()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with tempfile.TemporaryDirectory() as directory:
        relay = PagesRelay(Path(directory) / "web.sock")
        await relay.start()

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            away.begun += 1
            await relay(scope, receive, send)

        edge = Edge(counted, EdgeSettings(body_limit=BODY_LIMIT))
        async with (
            serving(edge, listener, http=GuardedHttpProtocol) as server,
            aiohttp.ClientSession() as client,
        ):
            away = Relayed(url, Path(directory) / "web.sock", client)
            away.server = server
            yield away
        await relay.stop()


@pytest.fixture
async def relayed(away: Relayed) -> AsyncIterator[Relayed]:
    async with pages_at(away.path, away.pages):
        yield away


async def test_requests_and_responses_are_relayed_unchanged(relayed: Relayed) -> None:
    target = "/a%2Fb/%C3%A4//c?q=1&r=%20+"
    sent = {"cookie": "s=1; t=2", "x-forwarded-for": "10.9.9.9", "accept-encoding": "gzip"}
    async with relayed.client.post(
        aiohttp.client.URL(relayed.url + target, encoded=True), data=b"x" * 70_000, headers=sent
    ) as answer:
        assert (answer.status, await answer.read()) == (207, b"whole")
        assert answer.headers.getall("set-cookie") == ["a=1", "b=2"]
        assert len(answer.headers.getall("x-request-id")) == len(answer.headers.getall("date")) == 1
    (scope,) = relayed.pages.scopes
    headers = dict(scope["headers"])
    assert (scope["method"], scope["raw_path"], scope["query_string"]) == ("POST", b"/a%2Fb/%C3%A4//c", b"q=1&r=%20+")
    assert relayed.pages.bodies == [b"x" * 70_000]
    assert {name: headers[name.encode()].decode() for name in sent} == sent
    assert headers[b"host"].decode() == relayed.url.removeprefix("http://")
    assert headers[b"content-length"] == b"70000"
    assert headers[b"x-request-id"].decode() == answer.headers["x-request-id"]


async def test_a_body_without_length_is_relayed_in_chunks(relayed: Relayed) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for part in (b"one ", b"two"):
            yield part

    async with relayed.client.put(relayed.url + "/", data=parts()) as answer:
        assert answer.status == 207
    assert relayed.pages.bodies == [b"one two"]


async def test_a_response_is_relayed_while_it_arrives(relayed: Relayed) -> None:
    async with relayed.client.get(relayed.url + "/slow") as answer:
        assert await answer.content.readany() == b"first "
        relayed.pages.go_on.set()
        assert await answer.read() == b"whole"


async def test_the_client_address_comes_only_from_the_gateway(relayed: Relayed) -> None:
    connection = await RawConnection.open(relayed.url)
    await connection.send(
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Headway-Client: 10.0.0.1 1\r\nx-headway-client: 10.0.0.2 2\r\n"
        b"Connection: x-headway-client, close\r\n\r\n"
    )
    await connection.closed()
    await connection.close()
    (scope,) = relayed.pages.scopes
    address, port = scope["client"]
    assert (address, port > 1000) == ("127.0.0.1", True)
    assert HEADER not in dict(scope["headers"])


async def test_a_body_over_the_limit_is_rejected_by_the_edge(relayed: Relayed) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(4):
            yield b"x" * (BODY_LIMIT // 2)

    async with relayed.client.post(relayed.url + "/", data=parts()) as answer:
        assert answer.status == 413
        assert (await answer.json())["error"]["code"] == "body_too_large"


async def test_without_pages_a_browser_gets_a_page_and_a_program_an_error(away: Relayed) -> None:
    async with away.client.get(away.url + "/", headers={"accept": "text/html,*/*"}) as answer:
        assert (answer.status, answer.content_type) == (503, "text/html")
        assert answer.headers["retry-after"]
        assert '<meta http-equiv="refresh"' in await answer.text(), "it reloads by itself until the console is there"
    async with away.client.post(away.url + "/api/v1/engines", json={}) as answer:
        assert answer.status == 503
        assert (await answer.json())["error"]["code"] == "console_unavailable"
    async with away.client.head(away.url + "/") as answer:
        assert (answer.status, await answer.read()) == (503, b"")


async def test_restarted_pages_serve_the_next_request(away: Relayed) -> None:
    for _ in range(2):
        async with away.client.get(away.url + "/") as answer:
            assert answer.status == 503
        async with pages_at(away.path, away.pages), away.client.get(away.url + "/") as answer:
            assert answer.status == 207


async def test_a_truncated_response_is_visibly_incomplete(relayed: Relayed) -> None:
    async with pages_at(relayed.path, Pages()) as server, relayed.client.get(relayed.url + "/slow") as answer:
        assert await answer.content.readany() == b"first "
        server.force_exit = server.should_exit = True
        for connection in list(server.server_state.connections):
            connection.transport.abort()
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()


async def test_a_websocket_is_relayed_both_ways_with_its_close_codes(relayed: Relayed) -> None:
    url = relayed.url + "/ws/fleet?x=1"
    async with relayed.client.ws_connect(url, protocols=("v1",), headers={"origin": relayed.url}) as ws:
        assert ws.protocol == "v1"
        await ws.send_str("hello")
        assert await ws.receive_str() == "hello"
        await ws.send_bytes(b"\x00" * 100_000)
        assert await ws.receive_bytes() == b"\x00" * 100_000
        await ws.send_str("end")
        assert (await ws.receive()).type is aiohttp.WSMsgType.CLOSE
        assert ws.close_code == 4001
    (scope,) = relayed.pages.scopes
    assert (scope["path"], scope["query_string"], scope["client"][0]) == ("/ws/fleet", b"x=1", "127.0.0.1")
    assert dict(scope["headers"])[b"origin"].decode() == relayed.url


async def test_a_client_disconnect_ends_the_websocket_behind_the_relay(relayed: Relayed) -> None:
    async with relayed.client.ws_connect(relayed.url + "/ws/fleet"):
        pass
    async with asyncio.timeout(PATIENCE_S):
        await relayed.pages.left.wait()


@pytest.mark.parametrize("path", ["/ws/closed", "/ws/fleet"])
async def test_a_websocket_that_is_rejected_or_has_no_server_is_closed(away: Relayed, path: str) -> None:
    async def connect() -> int:
        with pytest.raises(aiohttp.WSServerHandshakeError) as rejected:
            await away.client.ws_connect(away.url + path)
        return rejected.value.status

    if path == "/ws/closed":
        async with pages_at(away.path, away.pages):
            assert await connect() == 403
    else:
        assert await connect() == 403


POST = b"POST /a HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n"


@pytest.mark.parametrize("resets", [False, True])
@pytest.mark.parametrize(
    "sent",
    [
        POST + b"Content-Length: 50\r\n\r\n",
        POST + b"Content-Length: 50\r\n\r\nuser",
        CHUNKED,
        CHUNKED + b"zz\r\n",
        b"GET /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\nuser",
        b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
async def test_a_client_that_disconnects_midway_is_not_an_error(
    relayed: Relayed, caplog: pytest.LogCaptureFixture, sent: bytes, resets: bool
) -> None:
    connection = await RawConnection.open(relayed.url)
    await connection.send(sent)
    await until(lambda: relayed.begun)
    if resets:
        connection.reset()
    await connection.close()
    relayed.pages.go_on.set()
    await until(lambda: relayed.over)
    assert logged_errors(caplog) == []
    async with relayed.client.get(relayed.url + "/") as answer:
        assert answer.status == 207


async def test_a_body_over_the_limit_after_an_early_response_is_not_an_error(
    relayed: Relayed, caplog: pytest.LogCaptureFixture
) -> None:
    connection = await RawConnection.open(relayed.url)
    await connection.send(CHUNKED.replace(b"/a", b"/early"))
    async with asyncio.timeout(PATIENCE_S):
        assert (await connection.answer())[0] == 403
        await connection.send((b"10000\r\n" + b"x" * 0x10000 + b"\r\n") * 3)
        while not await connection.closed():
            pass
    await connection.close()
    await until(lambda: relayed.over)
    assert logged_errors(caplog) == []


def frame(opcode: int, data: bytes, *, final: bool = True, masked: bool = True, length: int | None = None) -> bytes:
    size = len(data) if length is None else length
    head = bytes([final << 7 | opcode, masked << 7 | (size if size < 126 else 127)])
    return head + (b"" if size < 126 else size.to_bytes(8, "big")) + (bytes(4) if masked else b"") + data


UPGRADE = (
    b"GET /ws/fleet HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
BAD_FRAMES = {
    "text that is no UTF-8": frame(1, b"\xff\xfe"),
    "an unknown opcode": frame(11, b"a"),
    "no mask": frame(1, b"a", masked=False),
    "a length of a TiB": frame(1, b"a", length=1 << 40),
    "half a frame": frame(1, b"abc", length=100),
    "half a close code": frame(8, b"\x03"),
    "a close code that may not be sent": frame(8, (1005).to_bytes(2, "big")),
    "a long ping": frame(9, b"a" * 200),
    "fragments in disorder": frame(0, b"a") + frame(1, b"a", final=False) + frame(1, b"b"),
}


async def test_a_client_that_drops_its_websocket_is_not_an_error(
    relayed: Relayed, caplog: pytest.LogCaptureFixture
) -> None:
    connection = await RawConnection.open(relayed.url)
    await connection.send(UPGRADE)
    await until(lambda: relayed.begun)
    connection.reset()
    await connection.close()
    await until(lambda: relayed.over)
    assert logged_errors(caplog) == []


@pytest.mark.parametrize("upgrade", [UPGRADE.replace(b"13", b"99"), UPGRADE.replace(b"dGhl", b"!")])
async def test_an_invalid_websocket_request_is_not_an_error(
    relayed: Relayed, caplog: pytest.LogCaptureFixture, upgrade: bytes
) -> None:
    connection = await RawConnection.open(relayed.url)
    await connection.send(upgrade)
    async with asyncio.timeout(PATIENCE_S):
        assert (await connection.answer())[0] in (400, 426)
    await connection.close()
    assert logged_errors(caplog) == []


@pytest.mark.parametrize("name", BAD_FRAMES)
async def test_a_websocket_protocol_violation_is_not_an_error(
    relayed: Relayed, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    connection = await RawConnection.open(relayed.url)
    await connection.send(UPGRADE)
    async with asyncio.timeout(PATIENCE_S):
        assert (await connection.answer())[0] == 101
    await connection.send(BAD_FRAMES[name])
    await connection.close()
    await until(lambda: relayed.over)
    assert logged_errors(caplog) == []
