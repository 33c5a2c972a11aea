"""The fault proxy: bytes in order, stalls that lose nothing, resets, and rejection while the target is down."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from simulator.fault_proxy import FaultyLink
from tests.gateway.ports import listen
from tests.patience import PATIENCE_S


@asynccontextmanager
async def echoing() -> AsyncIterator[tuple[FaultyLink, asyncio.Server]]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1024):
                writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    with listen() as held:
        port = held.getsockname()[1]
    link = FaultyLink(port, f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    link.start()
    try:
        yield link, server
    finally:
        await link.stop()
        server.close()


async def connected(link: FaultyLink) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await asyncio.open_connection("127.0.0.1", link.port)
            except ConnectionRefusedError:
                await asyncio.sleep(0.02)


async def test_bytes_pass_in_order_and_a_stall_loses_none() -> None:
    async with echoing() as (link, _):
        reader, writer = await connected(link)
        writer.write(b"one ")
        async with asyncio.timeout(PATIENCE_S):
            assert await reader.readexactly(4) == b"one "
        link.there.stall(True)
        writer.write(b"two ")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await reader.readexactly(1)
        writer.write(b"three")
        link.there.stall(False)
        async with asyncio.timeout(PATIENCE_S):
            assert await reader.readexactly(9) == b"two three"
        writer.close()


async def test_a_reset_ends_open_connections() -> None:
    async with echoing() as (link, _):
        reader, writer = await connected(link)
        writer.write(b"x")
        async with asyncio.timeout(PATIENCE_S):
            await reader.readexactly(1)
            link.reset()
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)
        writer.close()


async def test_connections_are_rejected_while_the_target_does_not_listen() -> None:
    async with echoing() as (link, server):
        (await connected(link))[1].close()
        server.close()
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", link.port)
                except ConnectionRefusedError:
                    return
                writer.close()
                await asyncio.sleep(0.02)
