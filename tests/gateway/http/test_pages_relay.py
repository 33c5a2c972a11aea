"""What is not the gateway's own is relayed as it is, both ways; without a process that serves pages it is 503."""

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
from gateway.http.edge import Edge, EdgeSettings
from gateway.http.forwarded_client import HEADER, ForwardedClient
from gateway.http.http_protocol import GuardedHttpProtocol
from gateway.http.pages_relay import PagesRelay
from tests.gateway.ports import listen
from tests.gateway.raw_http import RawConnection
from tests.patience import PATIENCE_S

BODY_LIMIT = 100_000


class Pages:
    """An app that keeps what it was asked, and answers by path."""

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
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self.bodies.append(body)
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
    """A relay in front of pages that come and go."""

    def __init__(self, url: str, path: Path, client: aiohttp.ClientSession) -> None:
        self.url = url
        self.path = path
        self.client = client
        self.pages = Pages()


@pytest.fixture
async def away() -> AsyncIterator[Relayed]:
    """The relay, while nobody serves pages."""
    listener = listen()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with tempfile.TemporaryDirectory() as directory:
        relay = PagesRelay(Path(directory) / "web.sock")
        await relay.start()
        edge = Edge(relay, EdgeSettings(body_limit=BODY_LIMIT))
        async with serving(edge, listener, http=GuardedHttpProtocol), aiohttp.ClientSession() as client:
            yield Relayed(url, Path(directory) / "web.sock", client)
        await relay.stop()


@pytest.fixture
async def relayed(away: Relayed) -> AsyncIterator[Relayed]:
    async with pages_at(away.path, away.pages):
        yield away


async def test_a_request_arrives_as_it_was_sent_and_so_does_its_answer(relayed: Relayed) -> None:
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


async def test_an_answer_is_relayed_while_it_comes(relayed: Relayed) -> None:
    async with relayed.client.get(relayed.url + "/slow") as answer:
        assert await answer.content.readany() == b"first "
        relayed.pages.go_on.set()
        assert await answer.read() == b"whole"


async def test_the_clients_address_is_the_gateways_word_and_nobody_elses(relayed: Relayed) -> None:
    connection = await RawConnection.open(relayed.url)
    await connection.send(
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Switchyard-Client: 10.0.0.1 1\r\nx-switchyard-client: 10.0.0.2 2\r\n"
        b"Connection: x-switchyard-client, close\r\n\r\n"
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


async def test_pages_that_come_back_are_found_by_the_next_request(away: Relayed) -> None:
    for _ in range(2):
        async with away.client.get(away.url + "/") as answer:
            assert answer.status == 503
        async with pages_at(away.path, away.pages), away.client.get(away.url + "/") as answer:
            assert answer.status == 207


async def test_an_answer_that_breaks_off_is_seen_to_be_incomplete(relayed: Relayed) -> None:
    async with pages_at(relayed.path, Pages()) as server, relayed.client.get(relayed.url + "/slow") as answer:
        assert await answer.content.readany() == b"first "
        server.force_exit = server.should_exit = True
        for connection in list(server.server_state.connections):
            connection.transport.abort()
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()


async def test_a_websocket_is_relayed_both_ways_with_its_codes(relayed: Relayed) -> None:
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


async def test_a_client_that_leaves_ends_the_websocket_behind_the_relay(relayed: Relayed) -> None:
    async with relayed.client.ws_connect(relayed.url + "/ws/fleet"):
        pass
    async with asyncio.timeout(PATIENCE_S):
        await relayed.pages.left.wait()


@pytest.mark.parametrize("path", ["/ws/closed", "/ws/fleet"])
async def test_a_websocket_that_is_rejected_or_finds_nobody_is_closed(away: Relayed, path: str) -> None:
    async def connect() -> int:
        with pytest.raises(aiohttp.WSServerHandshakeError) as rejected:
            await away.client.ws_connect(away.url + path)
        return rejected.value.status

    if path == "/ws/closed":
        async with pages_at(away.path, away.pages):
            assert await connect() == 403
    else:
        assert await connect() == 403
