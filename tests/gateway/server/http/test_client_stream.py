"""A response's body goes to its client without waiting, and its source stops while the client does not read.

Time limits of a body, with a clock of the test.

Bodies in pieces, responses with their decision, and disconnected clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn

from gateway.server.http.client_stream import DirectClientStream, MessageStream
from gateway.server.http.edge import EdgeSettings
from gateway.server.http.guarded_receive import SWEEP_S, BodyWatch, GuardedReceive
from gateway.server.http.http_exchange import ClientGoneError, Exchange
from gateway.server.http.http_protocol import HEAD_TIMEOUT_S, REST_TIMEOUT_S, GuardedHttpProtocol
from tests.gateway.ports import listen
from tests.patience import PATIENCE_S, until

HEADERS = [(b"content-type", b"text/event-stream")]
Serve = Callable[[Exchange], Awaitable[None]]


class Source:
    """A source that counts pauses and resumptions."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def pause(self) -> None:
        self.calls.append("pause")

    def resume(self) -> None:
        self.calls.append("resume")


@asynccontextmanager
async def client_of(serve: Serve) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Serve an app, and yield a client's connection to it."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await serve(Exchange(scope, receive, send))

    listener = listen()
    config = uvicorn.Config(app, http=GuardedHttpProtocol, lifespan="off", log_config=None, access_log=False)
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve([listener]))
    reader, writer = await asyncio.open_connection(*listener.getsockname(), limit=1 << 16)
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield reader, writer
    finally:
        writer.close()
        server.should_exit = True
        await running


def request() -> bytes:
    """Return a request."""
    return b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"


async def streamed(exchange: Exchange, source: Source, first: bytes, *parts: bytes, last: bytes = b"") -> None:
    """Send a response as the relay does."""
    await exchange.body()
    await exchange.start(200, list(HEADERS), first)
    stream = exchange.stream()
    stream.follow(source)
    ended = asyncio.get_running_loop().create_future()
    for part in parts:
        stream.write(part)
    ended.set_result(None)
    await stream.until(ended)
    await exchange.end(last)
    stream.follow(None)


async def test_a_direct_stream_sends_chunks_and_the_connection_serves_the_next_request() -> None:
    async def serve(exchange: Exchange) -> None:
        assert isinstance(exchange.stream(), DirectClientStream)
        await streamed(exchange, Source(), b"first", b"second", b"x" * 17, last=b"last")

    async with client_of(serve) as (reader, writer):
        for _ in range(2):
            writer.write(request())
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"transfer-encoding: chunked" in head
            body = await reader.readuntil(b"0\r\n\r\n")
            assert body == b"5\r\nfirst\r\n6\r\nsecond\r\n11\r\n" + b"x" * 17 + b"\r\n4\r\nlast\r\n0\r\n\r\n"


async def test_the_head_and_the_first_part_are_one_write() -> None:
    written: list[bytes] = []

    async def serve(exchange: Exchange) -> None:
        transport = exchange.stream()._cycle.transport  # type: ignore[attr-defined]
        exchange.stream()._cycle.transport = Recorder(transport, written)  # type: ignore[attr-defined]
        await streamed(exchange, Source(), b"first", last=b"last")

    async with client_of(serve) as (reader, writer):
        writer.write(request())
        await reader.readuntil(b"0\r\n\r\n")
    head, end = written
    assert head.startswith(b"HTTP/1.1 200")
    assert head.endswith(b"5\r\nfirst\r\n")
    assert end == b"4\r\nlast\r\n0\r\n\r\n"


class Recorder:
    """A transport that records writes."""

    def __init__(self, transport: Any, written: list[bytes]) -> None:
        self._transport, self._written = transport, written

    def write(self, data: bytes) -> None:
        self._written.append(data)
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


async def test_a_client_that_does_not_read_pauses_the_source_until_it_reads() -> None:
    source, sent = Source(), asyncio.Event()

    async def serve(exchange: Exchange) -> None:
        await exchange.body()
        await exchange.start(200, list(HEADERS), b"first")
        stream = exchange.stream()
        stream.follow(source)
        while "pause" not in source.calls:
            stream.write(b"x" * 65536)
            await asyncio.sleep(0)
        sent.set()
        ended = asyncio.get_running_loop().create_future()
        ended.set_result(None)
        await stream.until(ended)
        await exchange.end(b"last")
        stream.follow(None)

    async with client_of(serve) as (reader, writer):
        writer.write(request())
        await sent.wait()
        assert source.calls == ["pause"]
        while b"last" not in await reader.read(1 << 20):
            pass
        await until(lambda: source.calls == ["pause", "resume"])


async def test_a_source_that_follows_a_client_who_does_not_read_starts_paused() -> None:
    source, paused = Source(), asyncio.Event()

    async def serve(exchange: Exchange) -> None:
        await exchange.body()
        await exchange.start(200, list(HEADERS), b"first")
        stream, earlier = exchange.stream(), Source()
        stream.follow(earlier)
        while not earlier.calls:
            stream.write(b"x" * 65536)
            await asyncio.sleep(0)
        stream.follow(source)
        paused.set()
        await exchange.end()

    async with client_of(serve) as (_, writer):
        writer.write(request())
        await paused.wait()
        assert source.calls == ["pause"]


async def test_what_is_written_for_a_client_that_is_gone_is_dropped() -> None:
    gone = asyncio.Event()

    async def serve(exchange: Exchange) -> None:
        await exchange.body()
        await exchange.start(200, list(HEADERS), b"first")
        await exchange.disconnected()
        exchange.stream().write(b"late")
        gone.set()

    async with client_of(serve) as (reader, writer):
        writer.write(request())
        await reader.readuntil(b"first")
        writer.close()
        await gone.wait()


def _message_stream(sent: list[bytes], delay_s: float = 0.0, *, fails: bool = False) -> MessageStream:
    async def send(body: bytes) -> None:
        await asyncio.sleep(delay_s)
        if fails:
            raise ClientGoneError
        sent.append(body)

    return MessageStream(send)


async def test_messages_are_sent_in_order_while_the_source_pauses_and_none_is_lost_at_the_end() -> None:
    sent: list[bytes] = []
    stream, source = _message_stream(sent, 0.01), Source()
    stream.follow(source)
    ended = asyncio.get_running_loop().create_future()
    passing = asyncio.create_task(stream.until(ended))
    for part in (b"a", b"b"):
        stream.write(part)
    await until(lambda: len(sent) == 1)
    stream.write(b"c")
    ended.set_result(None)
    stream.write(b"d")
    await passing
    assert b"".join(sent) == b"abcd"
    assert source.calls == ["pause", "resume"] * len(sent)


async def test_a_client_that_is_gone_ends_the_messages() -> None:
    stream = _message_stream([], fails=True)
    stream.write(b"a")
    with pytest.raises(ClientGoneError):
        await stream.until(asyncio.get_running_loop().create_future())


async def test_a_message_stream_follows_the_head() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    exchange = Exchange({"type": "http", "method": "POST", "path": "/", "headers": []}, send, send)
    await exchange.start(200, list(HEADERS), b"first")
    assert isinstance(exchange.stream(), MessageStream)
    await exchange.end(b"last")
    assert [message.get("body") for message in sent] == [None, b"first", b"last"]


MOST_S = 10.0


async def receive() -> Any:
    raise AssertionError("nothing is received here")


@pytest.mark.parametrize(("bytes_of_sweep", "closed"), [(0, True), (1, True), (100, True), (16_000, False)])
def test_a_slow_body_ends_within_ten_seconds(bytes_of_sweep: int, closed: bool) -> None:
    settings = EdgeSettings()
    read = GuardedReceive(receive, settings.body_limit, BodyWatch(settings.stall_s, settings.min_bytes_per_s))
    now_s = 0.0
    while now_s < MOST_S and now_s < read.deadline(now_s):
        if bytes_of_sweep:
            read.received += bytes_of_sweep
            read._last_seen = None
        now_s += SWEEP_S
    assert (now_s < MOST_S) is closed


def test_heads_and_data_after_a_response_have_no_longer_limit() -> None:
    assert max(HEAD_TIMEOUT_S, REST_TIMEOUT_S) <= MOST_S


SCOPE: dict[str, Any] = {"type": "http", "method": "POST", "path": "/", "headers": []}


def _exchange(*messages: Any, fails: bool = False) -> tuple[Exchange, list[Any]]:
    waiting, sent = list(messages), []

    async def receive() -> Any:
        return waiting.pop(0)

    async def send(message: Any) -> None:
        if fails:
            raise OSError
        sent.append(message)

    return Exchange(SCOPE, receive, send), sent


def _part(body: bytes, more: bool) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


async def test_a_body_is_read_whole() -> None:
    assert await _exchange(_part(b"abc", False))[0].body() == b"abc"
    assert (
        await _exchange(_part(b"a", True), {"type": "http.request", "more_body": True}, _part(b"c", False))[0].body()
        == b"ac"
    )


@pytest.mark.parametrize("messages", [[{"type": "http.disconnect"}], [_part(b"a", True), {"type": "http.disconnect"}]])
async def test_a_disconnect_before_the_end_of_the_body_is_a_gone_client(messages: list[Any]) -> None:
    with pytest.raises(ClientGoneError):
        await _exchange(*messages)[0].body()


async def test_a_response_names_its_decision_once_made() -> None:
    exchange, sent = _exchange()
    exchange.decision_id = "id-1"
    await exchange.answer(200, b"{}")
    assert dict(sent[0]["headers"])[b"x-headway-decision"] == b"id-1"
    assert dict(sent[0]["headers"])[b"content-length"] == b"2"
    assert exchange.started
    plain, sent = _exchange()
    await plain.answer(200, b"{}")
    assert b"x-headway-decision" not in dict(sent[0]["headers"])


async def test_a_disconnect_reported_by_the_server_counts_as_a_gone_client() -> None:
    for act in (
        lambda item: item.answer(200, b""),
        lambda item: item.start(200, []),
        lambda item: item.chunk(b""),
        lambda item: item.end(),
    ):
        with pytest.raises(ClientGoneError):
            await act(_exchange(fails=True)[0])
