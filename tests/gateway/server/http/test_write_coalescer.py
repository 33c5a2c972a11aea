"""Responses of one loop iteration are written together and in order; none is lost when its connection changes.

The fast path is discovered behind wrappers, and only if the app has one.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from types import SimpleNamespace

import pytest
import uvicorn
from typing_extensions import override
from uvicorn.server import ServerState

from gateway.contracts.snapshot import ApiKeyEntry
from gateway.server.http.edge import Edge
from gateway.server.http.http_protocol import GuardedHttpProtocol
from gateway.server.http.request_head import RequestHead, new_id
from gateway.server.http.sync_fast_path import (
    MAX_HELD,
    PATH,
    TARGETS,
    FastAnswer,
    Headers,
    KnownHead,
    WriteCoalescer,
    coalescer_of,
    fast_path_of,
)

ADMISSION = KnownHead((ApiKeyEntry(key_id="k", sha256="", tenant_id="t"),), None, None)
HEAD = b"POST /api/v1/route HTTP/1.1\r\nHost: here\r\nContent-Length: 1\r\n\r\n"


class _Wire(asyncio.Transport):
    """A transport that stores written bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False

    @override
    def write(self, data: bytes) -> None:  # type: ignore[override]  # bytes are all that comes
        assert not self.closed, "the server writes to a closed connection"
        self.written += data

    @override
    def is_closing(self) -> bool:
        return self.closed

    @override
    def close(self) -> None:
        self.closed = True


class _App:
    """An app with a fast path that echoes each body and declines `!`."""

    @property
    def fast_path(self) -> _App:
        return self

    def admit(self, target: bytes, headers: Headers) -> KnownHead:
        assert target in TARGETS and headers
        return ADMISSION

    def answer_at_once(self, admission: KnownHead, body: bytes) -> FastAnswer | None:
        assert admission is ADMISSION
        return None if body == b"!" else FastAnswer(200, b"", body)

    async def __call__(self, scope: object, receive: object, send: object) -> None:
        raise AssertionError("the fast path does not call the app")


@pytest.fixture
async def connection() -> tuple[GuardedHttpProtocol, _Wire]:
    """Return a connection with a known head, so that its responses are held."""
    config = uvicorn.Config(_App(), http=GuardedHttpProtocol, lifespan="off", log_config=None)  # type: ignore[arg-type]
    config.load()
    protocol, wire = GuardedHttpProtocol(config, ServerState(), {}), _Wire()
    protocol.connection_made(wire)
    protocol.data_received(HEAD + b"0")
    assert bodies(wire) == b"0"
    wire.written = b""
    return protocol, wire


def bodies(wire: _Wire) -> bytes:
    """Return the last byte of each response, which is its body."""
    return b"".join(part[-1:] for part in wire.written.split(b"HTTP/1.1 200 OK")[1:])


async def a_turn() -> None:
    """Let the loop finish its current iteration."""
    await asyncio.sleep(0)


async def test_responses_of_one_iteration_are_written_at_its_end_in_order(
    connection: tuple[GuardedHttpProtocol, _Wire],
) -> None:
    protocol, wire = connection
    for body in (b"1", b"2", b"3"):
        protocol.data_received(HEAD + body)
    assert wire.written == b""
    await a_turn()
    assert bodies(wire) == b"123"
    protocol.data_received(HEAD + b"4")
    await a_turn()
    assert bodies(wire) == b"1234"


async def test_no_response_waits_for_more_than_a_few_others(connection: tuple[GuardedHttpProtocol, _Wire]) -> None:
    protocol, wire = connection
    for _ in range(MAX_HELD + 1):
        protocol.data_received(HEAD + b"1")
    assert bodies(wire) == b"1" * MAX_HELD
    await a_turn()
    assert bodies(wire) == b"1" * (MAX_HELD + 1)


async def test_ordinary_writes_follow_held_responses(connection: tuple[GuardedHttpProtocol, _Wire]) -> None:
    protocol, wire = connection
    protocol.data_received(HEAD + b"1")
    protocol.data_received(b"this is no request\r\n\r\n")
    assert wire.written.startswith(b"HTTP/1.1 200 OK")
    assert b"HTTP/1.1 400" in wire.written
    await a_turn()


@pytest.mark.parametrize("end", ["eof_received", "shutdown"])
async def test_a_closing_connection_gets_its_response_first(
    connection: tuple[GuardedHttpProtocol, _Wire], end: str
) -> None:
    protocol, wire = connection
    protocol.data_received(HEAD + b"1")
    getattr(protocol, end)()
    wire.close()
    assert bodies(wire) == b"1"
    await a_turn()


async def test_a_lost_connection_does_not_drop_other_responses() -> None:
    writes, gone, here = WriteCoalescer(), _Wire(), _Wire()
    loop = asyncio.get_running_loop()
    for wire in (gone, here):
        writes.add(loop, wire, b"!")
    gone.close()
    await a_turn()
    assert (gone.written, here.written) == (b"", b"!")


def test_connections_of_one_loop_share_a_coalescer_that_ends_with_it() -> None:
    one, other = asyncio.new_event_loop(), asyncio.new_event_loop()
    assert coalescer_of(one) is coalescer_of(one) is not coalescer_of(other)
    known = weakref.ref(coalescer_of(one))
    for loop in (one, other):
        loop.close()
    del one, loop
    gc.collect()
    assert known() is None


HEADERS = [(b"host", b"localhost")]


async def _app(*_: object) -> None:
    raise AssertionError("the fast path does not call the app")


class _Inner:
    new_id = staticmethod(new_id)

    def admit(self, target: bytes, head: RequestHead) -> KnownHead:
        assert target == PATH
        assert head.headers[b"host"] == b"localhost"
        return ADMISSION

    def answer_at_once(self, admission: KnownHead, body: bytes) -> FastAnswer:
        return FastAnswer(200, b"", admission.keys[0].key_id.encode() + body)


def test_the_fast_path_is_discovered_behind_a_wrapper() -> None:
    edge = Edge(_app, fast_path=_Inner())
    assert edge.fast_path is not None
    assert fast_path_of(SimpleNamespace(app=SimpleNamespace(app=edge))) is edge.fast_path


def test_apps_without_a_fast_path_report_none() -> None:
    assert fast_path_of(_app) is None
    assert fast_path_of(SimpleNamespace(app=None)) is None
    assert fast_path_of(Edge(_app)) is None


def test_the_edge_checks_fast_path_requests() -> None:
    fast_path = Edge(_app, fast_path=_Inner()).fast_path
    assert fast_path is not None
    admission = fast_path.admit(PATH, HEADERS)
    assert admission is ADMISSION
    assert fast_path.answer_at_once(admission, b"!").body == b"k!"
    assert fast_path.admit(PATH, [(b"host", b"evil.example")]) is None
    assert fast_path.admit(PATH, [*HEADERS, (b"content-encoding", b"gzip")]) is None
    assert fast_path.admit(PATH, [*HEADERS, (b"x-request-id", b"mine")]) is None
