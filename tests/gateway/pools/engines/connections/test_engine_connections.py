"""Connections to engines are reused while they are fresh, and broken off with the exchange that needed them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.pools.engines.connections.engine_connections import EngineConnections, EngineOrigin, engine_address
from gateway.pools.engines.connections.request_connection import RequestConnection
from gateway.pools.engines.engine_tls import AUTHORITY, engine_tls
from tests.certificates import certificates, tls_engine
from tests.gateway.ports import listen
from tests.patience import PATIENCE_S, until

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Engine:
    """Answers each request, and counts its connections and those that ended."""

    def __init__(self) -> None:
        self.connections = 0
        self.ended = 0
        self.stalls = False
        self.closes = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while not self.closes:
                await reader.readuntil(b"\r\n\r\n")
                if not self.stalls:
                    writer.write(ANSWER)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.ended += 1
            writer.close()


@asynccontextmanager
async def running(keepalive_s: float = 30.0) -> AsyncIterator[tuple[Engine, EngineConnections, EngineOrigin]]:
    """Yield an engine, a pool, and the engine's origin."""
    engine = Engine()
    server = await asyncio.start_server(engine.serve, "127.0.0.1", 0)
    pool = EngineConnections(keepalive_s)
    async with server:
        try:
            yield engine, pool, EngineOrigin("127.0.0.1", server.sockets[0].getsockname()[1], False)
        finally:
            await pool.close()
            await until(lambda: engine.ended == engine.connections)


async def exchange(pool: EngineConnections, origin: EngineOrigin) -> RequestConnection:
    """Make one request, and return its connection."""
    connection = await pool.take(origin, PATIENCE_S)
    try:
        connection.send(b"POST / HTTP/1.1\r\n\r\n", b"")
        await connection.head()
        assert await connection.read(10) == b"ok"
    finally:
        await pool.give_back(origin, connection)
    return connection


async def test_requests_in_sequence_share_a_connection_and_concurrent_ones_do_not() -> None:
    async with running() as (engine, pool, origin):
        assert await exchange(pool, origin) is await exchange(pool, origin)
        assert engine.connections == 1
        await asyncio.gather(*[exchange(pool, origin) for _ in range(3)])
        assert engine.connections == 3


async def test_an_idle_connection_is_closed_after_its_time_and_not_used_again() -> None:
    async with running(keepalive_s=0.05) as (engine, pool, origin):
        await exchange(pool, origin)
        await until(lambda: engine.ended == 1)
        await exchange(pool, origin)
        assert engine.connections == 2


async def test_a_connection_that_the_engine_has_closed_is_not_used_again() -> None:
    async with running() as (engine, pool, origin):
        engine.closes = True
        first = await pool.take(origin, PATIENCE_S)
        await until(lambda: not first.is_connected)
        await pool.give_back(origin, first)
        engine.closes = False
        await exchange(pool, origin)
        assert engine.connections == 2


async def test_an_incomplete_exchange_is_broken_off_before_it_is_given_back() -> None:
    async with running() as (engine, pool, origin):
        engine.stalls = True
        connection = await pool.take(origin, PATIENCE_S)
        connection.send(b"POST / HTTP/1.1\r\n\r\n", b"")
        await pool.give_back(origin, connection)
        assert not connection.is_connected
        await until(lambda: engine.ended == 1)


async def test_a_closed_port_is_an_error_at_once() -> None:
    listener = listen()
    port = listener.getsockname()[1]
    listener.close()
    pool = EngineConnections(1.0)
    with pytest.raises(ConnectionRefusedError):
        await pool.take(EngineOrigin("127.0.0.1", port, False), PATIENCE_S)
    await pool.close()


async def test_a_connection_that_is_not_accepted_in_time_is_a_timeout() -> None:
    # TLS to a server that never answers the handshake.
    listener = listen()
    pool = EngineConnections(1.0)
    with pytest.raises(TimeoutError):
        await pool.take(EngineOrigin("127.0.0.1", listener.getsockname()[1], True), 0.1)
    await pool.close()
    listener.close()


async def test_an_unknown_host_is_an_error() -> None:
    pool = EngineConnections(1.0)
    for host in ("no-such-host.invalid", "x" * 70 + ".invalid"):
        with pytest.raises(OSError, match=r".+"):
            await pool.take(EngineOrigin(host, 80, False), PATIENCE_S)


async def test_a_host_name_is_resolved_once_and_its_addresses_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as (_, pool, origin):
        loop, asked = asyncio.get_running_loop(), []

        async def getaddrinfo(host: str, port: int, **_: object) -> list[object]:
            asked.append(host)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{last}", port)) for last in (1, 2)]

        monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
        resolved = [await pool._resolved("engine.test", origin.port) for _ in range(2)]
        assert asked == ["engine.test"]
        assert {addresses[0][4][0] for addresses in resolved} == {"127.0.0.1", "127.0.0.2"}


async def test_an_idle_connection_detects_a_lost_peer() -> None:
    async with running() as (_, pool, origin):
        connection = await exchange(pool, origin)
        assert connection._transport is not None
        connected = connection._transport.get_extra_info("socket")
        assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60


async def test_tls_uses_the_engines_authorities(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = certificates(tmp_path)
    pool = EngineConnections(1.0)
    engine_tls.cache_clear()
    try:
        async with tls_engine(files) as url:
            origin = engine_address(url).origin
            with pytest.raises(OSError, match="certificate"):
                await pool.take(origin, PATIENCE_S)
            engine_tls.cache_clear()
            monkeypatch.setenv(AUTHORITY, str(files.authority))
            connection = await pool.take(origin, PATIENCE_S)
            connection.send(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n", b"")
            assert (await connection.head()).status == 200
            await pool.give_back(origin, connection)
            await pool.close()
    finally:
        engine_tls.cache_clear()


@pytest.mark.parametrize(
    ("url", "origin", "host", "path"),
    [
        ("http://engine", EngineOrigin("engine", 80, False), "engine", ""),
        ("http://engine:8000/", EngineOrigin("engine", 8000, False), "engine:8000", ""),
        ("https://engine/a/b/", EngineOrigin("engine", 443, True), "engine", "/a/b"),
        ("http://[::1]:8000", EngineOrigin("::1", 8000, False), "[::1]:8000", ""),
        ("http://münchen:81/ü", EngineOrigin("xn--mnchen-3ya", 81, False), "xn--mnchen-3ya:81", "/%C3%BC"),
    ],
)
def test_an_address_is_split_into_origin_host_and_path(url: str, origin: EngineOrigin, host: str, path: str) -> None:
    assert engine_address(url) == (origin, host, path)
