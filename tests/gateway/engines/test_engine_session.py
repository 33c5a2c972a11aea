"""The session to engines: interim answers hold nothing up, and a peer that is gone is noticed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from gateway.engines.engine_session import MAX_INTERIM, engine_session
from tests.patience import PATIENCE_S

INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Raw:
    """A server that sends the bytes of a test. Mutable: how many were taken."""

    def __init__(self, chunks: list[bytes]) -> None:
        self._chunks = chunks
        self.taken = 0
        self.over = asyncio.Event()
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                for chunk in self._chunks:
                    writer.write(chunk)
                    await writer.drain()
                    self.taken += len(chunk)
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()
            self.over.set()


@asynccontextmanager
async def raw(*chunks: bytes) -> AsyncIterator[tuple[Raw, aiohttp.ClientSession]]:
    server = Raw(list(chunks))
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/"
    async with listening, engine_session(keepalive_s=30.0) as session:
        yield server, session


async def test_some_interim_answers_are_ignored_and_the_connection_is_kept() -> None:
    async with raw(MAX_INTERIM * INTERIM + ANSWER) as (server, session):
        for _ in range(3):
            async with session.get(server.url) as response:
                assert await response.read() == b"ok"


async def test_an_engine_that_sends_interim_answers_for_ever_is_cut_off() -> None:
    chunk = 2_000 * INTERIM
    async with raw(*[chunk] * 100, ANSWER) as (server, session), asyncio.timeout(PATIENCE_S):
        with pytest.raises(aiohttp.ClientError):
            await session.get(server.url)
        await server.over.wait()
        assert server.taken < 100 * len(chunk)


async def test_a_connection_on_which_nothing_comes_for_minutes_is_kept_alive_and_checked() -> None:
    async with raw(ANSWER) as (server, session), session.get(server.url) as response:
        assert response.connection is None or response.connection.transport is not None
        async with session.get(server.url) as again:
            assert again.status == 200
        (kept,) = [each for held in session.connector._conns.values() for each, _ in held]  # type: ignore[union-attr]
        connected = kept.transport.get_extra_info("socket")
        assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
