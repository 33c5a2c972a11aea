"""The lightweight HTTP reader handles plain responses on a kept connection and rejects everything else clearly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from gateway.pools.engines.probe_http import NotPlainError, ProbeClient, TooLongError


class Server:
    """Answer each request with the next item of `answers`; None closes the connection instead."""

    def __init__(self) -> None:
        self.answers: list[bytes | None] = []
        self.requests: list[bytes] = []
        self.connections = 0
        self.port = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                answer = self.answers.pop(0)
                if answer is None:
                    return
                for part in answer.split(b"|"):
                    writer.write(part)
                    await asyncio.sleep(0)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


@pytest_asyncio.fixture
async def server() -> AsyncIterator[Server]:
    running = Server()
    listener = await asyncio.start_server(running.handle, "127.0.0.1", 0)
    running.port = listener.sockets[0].getsockname()[1]
    yield running
    listener.close()
    await listener.wait_closed()


@pytest_asyncio.fixture
async def reader(server: Server) -> AsyncIterator[ProbeClient]:
    get = ProbeClient(f"http://127.0.0.1:{server.port}", {"Authorization": "Bearer x"})
    yield get
    get.close()


def whole(body: bytes, head: bytes = b"") -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=1\r\nContent-Length: %d\r\n%s\r\n%s" % (
        len(body),
        head,
        body,
    )


async def test_whole_and_fragmented_responses_arrive_over_one_connection(server: Server, reader: ProbeClient) -> None:
    server.answers = [whole(b"one"), b"HTTP/1.1 404 No|\r\nContent-Le|ngth: 2\r\n\r|\nn|o", whole(b"")]
    assert await reader.get("/load", limit=100, timeout_s=5) == (200, "text/plain", b"one")
    assert await reader.get("/load", limit=100, timeout_s=5) == (404, "", b"no")
    assert (await reader.get("/x", limit=100, timeout_s=5)).body == b""
    assert server.connections == 1
    assert server.requests[0].startswith(b"GET /load HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"Authorization: Bearer x\r\n" in server.requests[0]


async def test_a_connection_that_the_server_closed_between_requests_is_replaced(
    server: Server, reader: ProbeClient
) -> None:
    server.answers = [whole(b"one"), None, whole(b"two"), whole(b"three", b"Connection: close\r\n"), whole(b"four")]
    for expected in (b"one", b"two", b"three", b"four"):
        assert (await reader.get("/", limit=100, timeout_s=5)).body == expected
    assert server.connections == 3


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nxx",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nxx",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nxxx",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"x" * 20_000,
    ],
)
async def test_other_response_forms_are_left_to_a_full_client(
    server: Server, reader: ProbeClient, answer: bytes
) -> None:
    server.answers = [answer]
    with pytest.raises(NotPlainError):
        await reader.get("/", limit=100, timeout_s=5)


async def test_length_and_duration_are_limited(server: Server, reader: ProbeClient) -> None:
    server.answers = [whole(b"x" * 11), b"HTTP/1.1 200", whole(b"fine")]
    with pytest.raises(TooLongError):
        await reader.get("/", limit=10, timeout_s=5)
    with pytest.raises(TimeoutError):
        await reader.get("/", limit=10, timeout_s=0.05)
    assert (await reader.get("/", limit=10, timeout_s=5)).body == b"fine"


async def test_a_truncated_response_is_an_error_and_is_not_requested_again(server: Server, reader: ProbeClient) -> None:
    server.answers = [whole(b"one")]
    await reader.get("/", limit=10, timeout_s=5)
    server.answers = [None, None]
    with pytest.raises(ConnectionError):
        await reader.get("/", limit=10, timeout_s=5)
    assert len(server.requests) == 3


def test_tls_is_left_to_the_full_client() -> None:
    assert ProbeClient.speaks("http://10.0.0.1:8000")
    assert not ProbeClient.speaks("https://10.0.0.1:8000")
