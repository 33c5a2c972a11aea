"""Any bytes from a client: responses are whole, apps see heads without trailers, and no state is left behind."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any, cast

import pytest
import uvicorn
from hypothesis import example, given
from hypothesis import strategies as st
from uvicorn.server import ServerState

from gateway.base.asgi_types import Receive, Scope, Send
from gateway.server.http.edge import Edge
from gateway.server.http.http_protocol import GuardedHttpProtocol

LINES = [
    b"GET /live HTTP/1.1\r\n", b"POST /api/v1/route HTTP/1.1\r\n", b"Host: 127.0.0.1\r\n", b"host: evil\r\n",
    b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n", b"Connection: upgrade\r\n",
    b"Upgrade: h2c\r\n", b"Expect: 100-continue\r\n", b"X-Trailer: 1\r\n", b"\r\n", b"abc", b"3\r\nabc\r\n", b"0\r\n",
    b"3;x=y\r\nabc\r\n", b"ffffffffffffffff\r\n", b" folded\r\n", b"\n", b"x" * 9000, b"x: " + b"y" * 70_000,
]  # fmt: skip
HEAD = re.compile(rb"HTTP/1\.1 \d{3} [^\r]*\r\n(?:[^\r]+\r\n)*\r\n")
LENGTH = re.compile(rb"content-length: (\d+)\r\n")


class FakeTransport(asyncio.Transport):
    """Store the written bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the addresses of a client on another machine."""
        return {"peername": ("10.0.0.1", 5), "sockname": ("10.0.0.2", 80)}.get(name, default)

    def write(self, data: Any) -> None:
        """Store the bytes."""
        assert not self.closed
        self.written += bytes(data)

    def close(self) -> None:
        """Record the close."""
        self.closed = True

    def is_closing(self) -> bool:
        """Return whether it was closed."""
        return self.closed

    def pause_reading(self) -> None:
        """Do nothing."""

    def resume_reading(self) -> None:
        """Do nothing."""


class Served:
    """An app behind the edge and the protocol, without a network."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.heads: list[list[tuple[bytes, bytes]]] = []
        config = uvicorn.Config(Edge(self._app), http=GuardedHttpProtocol, log_config=None, access_log=False)  # type: ignore[arg-type]
        config.load()
        self._config, self._state = config, ServerState()

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        while (message := await receive())["type"] == "http.request" and message.get("more_body"):
            pass
        self.heads.append(list(scope["headers"]))
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def feed(self, pieces: list[bytes]) -> bytes:
        """Send the pieces on one connection and return the responses."""
        protocol = GuardedHttpProtocol(self._config, self._state, {}, self.loop)
        transport = FakeTransport()
        protocol.connection_made(transport)
        for piece in pieces:
            if transport.closed:
                break
            protocol.data_received(piece)
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        protocol.connection_lost(None)
        while self._state.tasks:
            await asyncio.sleep(0)
        assert not self._state.connections
        assert protocol._source is None
        assert protocol._timer is None
        return transport.written


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    loop = asyncio.new_event_loop()
    yield Served(loop)
    loop.close()


@given(pieces=st.lists(st.sampled_from(LINES) | st.binary(max_size=20), max_size=14), joined=st.booleans())
@example(pieces=[*LINES[1:3], LINES[5], b"\r\n", b"0\r\n", b"Host: evil\r\n", b"\r\n"], joined=True)
@example(pieces=[LINES[0], LINES[2], b"x: " + b"y" * 70_000, b"\r\n", b"\r\n"], joined=True)
def test_any_bytes_get_whole_responses(server: Served, pieces: list[bytes], joined: bool) -> None:
    server.heads.clear()
    written = server.loop.run_until_complete(server.feed([b"".join(pieces)] if joined else pieces))
    assert b" 500 " not in written
    while written:
        answer = HEAD.match(written)
        assert answer, written
        length = LENGTH.search(answer[0])
        written = written[answer.end() + (int(length[1]) if length else 0) :]
    for head in server.heads:
        names = [name for name, _ in head]
        assert names.count(b"host") == 1
        assert cast("int", sum(len(name) + len(value) for name, value in head)) <= 64 * 1024
