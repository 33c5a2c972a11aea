"""A slow client slows its engine down, and neither the gateway's memory nor the engine's record pays for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.app import AppSettings
from gateway.proxy.attempt import RelaySettings
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import KEY, MODEL, ServedGateway, served
from tests.patience import PATIENCE_S, until

PIECE, COUNT = "x" * 65536, 600
BODY = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "stream": True}).encode()
HEAD = (
    "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n"
    f"authorization: Bearer {KEY}\r\ncontent-type: application/json\r\ncontent-length: {len(BODY)}\r\n\r\n"
).encode()


class CountingEngine(ScriptedEngine):
    """Counts the events that it could send."""

    sent = 0

    async def _event(self, *arguments: object) -> None:
        await super()._event(*arguments)  # type: ignore[arg-type]
        self.sent += 1


@asynccontextmanager
async def asked(
    tmp_path: Path, settings: AppSettings | None = None
) -> AsyncIterator[tuple[CountingEngine, ServedGateway, asyncio.StreamReader, asyncio.StreamWriter]]:
    """Send a request for a long stream over a connection that nothing has been read from."""
    async with CountingEngine() as engine, served([engine.url], tmp_path, settings=settings) as gateway:
        engine.chunks = [PIECE] * COUNT
        host, port = gateway.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 16)
        writer.write(HEAD + BODY)
        try:
            async with asyncio.timeout(PATIENCE_S):
                yield engine, gateway, reader, writer
        finally:
            writer.close()


def unchunked(text: bytes) -> bytes:
    """Return a body without its chunks."""
    parts, start = [], 0
    while size := int(text[start : (end := text.index(b"\r\n", start))], 16):
        parts.append(text[end + 2 : end + 2 + size])
        start = end + 2 + size + 2
    return b"".join(parts)


async def standstill(engine: CountingEngine) -> int:
    """Return the number of events sent when the engine can send no more."""
    last = -1
    while last != engine.sent or not last:
        last = engine.sent
        await asyncio.sleep(0.3)
    return last


async def test_a_client_that_does_not_read_stops_its_engine_and_then_gets_every_byte(tmp_path: Path) -> None:
    async with asked(tmp_path) as (engine, _, reader, _):
        assert await standstill(engine) < COUNT // 2
        text = b""
        while data := await reader.read(1 << 20):
            text += data
        body = unchunked(text.partition(b"\r\n\r\n")[2])
        assert body.count(PIECE.encode()) == COUNT
        assert body.endswith(b"data: [DONE]\n\n")
        assert engine.sent == COUNT + 1, "with the usage"


async def test_a_client_that_reads_nothing_for_its_time_is_gone_and_the_engine_is_not_blamed(tmp_path: Path) -> None:
    settings = AppSettings(relay=RelaySettings(answer_s=60.0, hang_s=60.0, client_s=0.5))
    async with asked(tmp_path, settings) as (engine, gateway, _, _):
        await engine.disconnected.wait()
        await until(lambda: len(gateway.pool.router.reservations) == 0)
        assert 'headway_requests_total{outcome="cancelled",pool="pool"} 1.0' in await gateway.metrics()
        assert gateway.pool.engines["engine-0"].breaker.accepts


@pytest.mark.parametrize("reads", [True, False])
async def test_a_client_that_leaves_ends_its_engines_work_whether_it_read_or_not(tmp_path: Path, reads: bool) -> None:
    async with asked(tmp_path) as (engine, gateway, reader, writer):
        if reads:
            await reader.read(1 << 20)
        else:
            await standstill(engine)
        writer.transport.abort()
        await engine.disconnected.wait()
        await until(lambda: len(gateway.pool.router.reservations) == 0)
        assert engine.sent < COUNT
