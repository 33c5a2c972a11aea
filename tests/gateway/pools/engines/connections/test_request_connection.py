"""Answers of engines as bytes on a socket: framing, faults, pauses, and which connections carry another request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from gateway.pools.engines.connections.request_connection import (
    MAX_HELD_BYTES,
    MAX_QUIET_BYTES,
    AnswerHead,
    ConnectionBrokenError,
    RequestConnection,
)
from gateway.pools.engines.engine_session import MAX_INTERIM
from gateway.server.http.large_body import in_pieces
from tests.patience import PATIENCE_S, until

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


class Peer:
    """The engine's side of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer


class Received:
    """A receiver that records what it gets."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.marked_last: list[bool] = []
        self.error: ConnectionBrokenError | None = None
        self.ended = asyncio.Event()

    def receive(self, body: bytes, last: bool) -> None:
        self.parts.append(body)
        self.marked_last.append(last)

    def end(self, error: ConnectionBrokenError | None) -> None:
        self.error = error
        self.ended.set()

    @property
    def body(self) -> bytes:
        """Return the body so far."""
        return b"".join(self.parts)


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[RequestConnection, Peer]]:
    """Yield both sides of a connection."""
    peers: asyncio.Queue[Peer] = asyncio.Queue()
    server = await asyncio.start_server(lambda r, w: peers.put_nowait(Peer(r, w)), "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    lost: list[RequestConnection] = []
    async with server:
        connection = RequestConnection(lost.append)
        await asyncio.get_running_loop().create_connection(lambda: connection, *address)
        peer = await peers.get()
        try:
            yield connection, peer
        finally:
            peer.writer.close()
            await connection.close()
        assert lost == [connection]


async def answered(connection: RequestConnection, peer: Peer, *sent: bytes) -> AnswerHead:
    """Send a request and these bytes of its answer; return the head."""
    connection.send(b"POST / HTTP/1.1\r\ncontent-length: 2\r\n\r\n", b"{}")
    assert (await peer.reader.readuntil(b"{}")).startswith(b"POST /")
    for data in sent:
        peer.writer.write(data)
        await peer.writer.drain()
    async with asyncio.timeout(PATIENCE_S):
        return await connection.head()


@pytest.mark.parametrize(
    ("sent", "body", "reusable"),
    [
        (CHUNKED + b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n", b"abcde", True),
        (CHUNKED + b"3\r\nabc\r\n0\r\nTrailer: x\r\n\r\n", b"abc", True),
        (OK + b"Content-Length: 5\r\n\r\nabcde", b"abcde", True),
        (OK + b"Content-Length: 0\r\n\r\n", b"", True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b"", True),
        (OK + b"Connection: close\r\nContent-Length: 5\r\n\r\nabcde", b"abcde", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nabcde", b"abcde", False),
        (MAX_INTERIM * b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 2\r\n\r\nok", b"ok", True),
        (OK + b"Content-Length: 2\r\n\r\nok" + OK, b"ok", False),
        (OK + b"Content-Length: 2\r\n\r\nokSURPLUS", b"ok", False),
    ],
)
async def test_each_framing_yields_its_body_and_whether_the_connection_is_reusable(
    sent: bytes, body: bytes, reusable: bool
) -> None:
    async with connected() as (connection, peer):
        head = await answered(connection, peer, sent)
        assert head.status in (200, 204)
        assert await connection.read(100) == body
        await asyncio.sleep(0.01)
        assert connection.reusable == reusable


@pytest.mark.parametrize("size", [1, 3, 7])
async def test_an_answer_in_fragments_is_the_same(size: int) -> None:
    sent = CHUNKED + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    async with connected() as (connection, peer):
        receiver = Received()
        asked = asyncio.create_task(answered(connection, peer))
        for start in range(0, len(sent), size):
            peer.writer.write(sent[start : start + size])
            await peer.writer.drain()
            await asyncio.sleep(0.001)
        await asked
        connection.pass_on(receiver)
        await receiver.ended.wait()
        assert receiver.body == b"abcde"


async def test_one_connection_carries_several_exchanges() -> None:
    async with connected() as (connection, peer):
        for number in range(3):
            await answered(connection, peer, OK + b"Content-Length: 1\r\n\r\n%d" % number)
            assert await connection.read(10) == b"%d" % number
            assert connection.reusable


async def test_an_unread_body_is_no_part_of_the_next_answer() -> None:
    async with connected() as (connection, peer):
        await answered(connection, peer, b"HTTP/1.1 302 Found\r\nContent-Length: 3\r\n\r\nold")
        await until(lambda: connection.reusable)
        await answered(connection, peer, OK + b"Content-Length: 3\r\n\r\nnew")
        assert await connection.read(10) == b"new"


async def test_a_body_without_length_ends_with_the_connection() -> None:
    async with connected() as (connection, peer):
        await answered(connection, peer, OK + b"\r\nabc")
        peer.writer.close()
        assert await connection.read(10) == b"abc"
        assert not connection.reusable


@pytest.mark.parametrize("sent", [CHUNKED + b"5\r\nabc", OK + b"Content-Length: 5\r\n\r\nabc"])
async def test_a_body_that_ends_early_is_an_error_after_its_bytes(sent: bytes) -> None:
    async with connected() as (connection, peer):
        await answered(connection, peer, sent)
        receiver = Received()
        connection.pass_on(receiver)
        peer.writer.close()
        await receiver.ended.wait()
        assert receiver.body == b"abc"
        assert receiver.error is not None


@pytest.mark.parametrize(
    "sent",
    [
        b"garbage\r\n\r\n",
        (MAX_INTERIM + 1) * b"HTTP/1.1 100 Continue\r\n\r\n",
        OK + b"X-Long: " + b"x" * 2 * MAX_QUIET_BYTES,
        OK + b"Content-Length: x\r\n\r\n",
    ],
)
async def test_an_answer_that_is_no_http_or_too_long_a_head_breaks_the_connection(sent: bytes) -> None:
    async with connected() as (connection, peer):
        with pytest.raises(ConnectionBrokenError):
            await answered(connection, peer, sent)
        assert not connection.is_open


async def test_endless_trailers_break_the_connection() -> None:
    async with connected() as (connection, peer):
        await answered(connection, peer, CHUNKED + b"1\r\na\r\n0\r\n")
        receiver = Received()
        connection.pass_on(receiver)
        peer.writer.write(b"X: " + b"x" * 3 * MAX_QUIET_BYTES)
        await receiver.ended.wait()
        assert receiver.error is not None


async def test_switching_protocols_is_a_final_answer_that_ends_the_connection() -> None:
    async with connected() as (connection, peer):
        head = await answered(connection, peer, b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\nxyz")
        assert head.status == 101
        assert not connection.reusable


async def test_a_connection_closed_before_the_answer_is_an_error() -> None:
    async with connected() as (connection, peer):
        connection.send(b"POST / HTTP/1.1\r\n\r\n", b"")
        peer.writer.close()
        with pytest.raises(ConnectionBrokenError):
            await connection.head()
        assert not connection.reusable


async def test_bytes_on_an_idle_connection_close_it() -> None:
    async with connected() as (connection, peer):
        await answered(connection, peer, OK + b"Content-Length: 0\r\n\r\n")
        assert await connection.read(1) == b""
        peer.writer.write(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
        await until(lambda: not connection.is_open)
        assert not connection.reusable


async def test_a_pause_holds_the_engine_and_resuming_loses_nothing() -> None:
    async with connected() as (connection, peer):
        await answered(connection, peer, CHUNKED)
        receiver = Received()
        connection.pass_on(receiver)
        connection.pause()
        piece = b"%x\r\n%b\r\n" % (1 << 16, b"x" * (1 << 16))
        count = 400
        sending = asyncio.create_task(_send(peer, piece * count + b"0\r\n\r\n"))
        await asyncio.sleep(0.2)
        assert receiver.body == b""
        assert not sending.done(), "the engine waits"
        connection.resume()
        await sending
        await receiver.ended.wait()
        assert len(receiver.body) == count << 16
        assert not any(receiver.marked_last[:-1])


async def _send(peer: Peer, data: bytes) -> None:
    peer.writer.write(data)
    await peer.writer.drain()


async def test_a_body_without_a_receiver_is_held_up_to_a_limit() -> None:
    async with connected() as (connection, peer):
        await answered(connection, peer, CHUNKED)
        size = 32 * MAX_HELD_BYTES * 8
        sending = asyncio.create_task(_send(peer, b"%x\r\n%b\r\n0\r\n\r\n" % (size, b"x" * size)))
        await asyncio.sleep(0.2)
        assert not sending.done(), "the engine waits"
        assert len(await connection.read(2 * size)) == size
        await sending


async def test_a_body_over_the_limit_is_cut_and_ends_the_connection() -> None:
    async with connected() as (connection, peer):
        await answered(connection, peer, OK + b"Content-Length: 100\r\n\r\n" + b"x" * 100)
        assert len(await connection.read(10)) == 11
        assert not connection.is_open


async def test_a_large_request_is_sent_at_the_engines_pace() -> None:
    async with connected() as (connection, peer):
        size = 32 << 20
        connection.send(b"POST / HTTP/1.1\r\n\r\n", in_pieces(b"x" * size))
        await asyncio.sleep(0.2)
        transport = cast(asyncio.Transport, connection._transport)
        assert transport.get_write_buffer_size() < 1 << 20
        assert len(await peer.reader.readexactly(size + 19)) == size + 19


async def test_an_answer_before_the_request_is_sent_completely_ends_the_connection() -> None:
    async with connected() as (connection, peer):
        connection.send(b"POST / HTTP/1.1\r\n\r\n", in_pieces(b"x" * (32 << 20)))
        peer.writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
        assert (await connection.head()).status == 413
        assert await connection.read(10) == b"no"
        assert not connection.reusable


def test_a_content_type_is_read_without_its_parameters() -> None:
    assert AnswerHead(200, {"content-type": "Text/Event-Stream; charset=utf-8"}).content_type == "text/event-stream"
    assert AnswerHead(200, {}).content_type == "application/octet-stream"


async def test_the_first_of_repeated_fields_counts_and_names_are_in_lower_case() -> None:
    async with connected() as (connection, peer):
        head = await answered(connection, peer, OK + b"X-A: 1\r\nx-a: 2\r\nX-B: \xff\r\nContent-Length: 0\r\n\r\n")
        assert head.headers["x-a"] == "1"
        assert head.headers["x-b"].encode("utf-8", "surrogateescape") == b"\xff"
