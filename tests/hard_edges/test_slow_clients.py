"""R33: clients with slow heads or bodies are disconnected after about ten seconds and delay no other client."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import aiohttp
import pytest

from bench.live.live_program import LiveProgram, live_program

pytestmark = [pytest.mark.processes, pytest.mark.thorough]

HALF_OPEN = 200
SLOW_BODIES = 40
CLOSED_S = 25.0
"""Far above the limits of ten seconds, so that the test passes on a busy machine."""


class SlowClient:
    """A connection that sends a byte a second and never ends its request."""

    def __init__(self, port: int, head: bytes) -> None:
        self._port = port
        self._head = head
        self.closed_after_s = 0.0
        self.answer = b""

    async def run(self) -> None:
        """Send slowly until the server closes the connection."""
        start = time.monotonic()
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(self._head)
        dribble = asyncio.create_task(self._dribble(writer))
        try:
            self.answer = await reader.read()
        except ConnectionResetError:
            pass
        finally:
            dribble.cancel()
            writer.close()
        self.closed_after_s = time.monotonic() - start

    async def _dribble(self, writer: asyncio.StreamWriter) -> None:
        while True:
            await asyncio.sleep(1.0)
            writer.write(b"a")


async def ask(running: LiveProgram, seconds: float) -> list[tuple[int, float]]:
    """Request pages for this long; return statuses and durations in seconds."""
    answers = []
    until = time.monotonic() + seconds
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session:
        while time.monotonic() < until:
            for way in ("/live", "/login", "/metrics"):
                start = time.monotonic()
                async with session.get(running.url + way) as answer:
                    await answer.read()
                    answers.append((answer.status, time.monotonic() - start))
            await asyncio.sleep(0.05)
    return answers


async def test_slow_heads_and_bodies_are_closed_while_other_clients_are_served(tmp_path: Path) -> None:
    with live_program(tmp_path) as running:
        heads = [SlowClient(running.port, b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ") for _ in range(HALF_OPEN)]
        posts = []
        for number in range(SLOW_BODIES):
            way = ("/login", "/api/v1/route", "/v1/chat/completions", "/api/v1/pools")[number % 4]
            start = f"POST {way} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n"
            posts.append(SlowClient(running.port, start.encode()))
        async with asyncio.timeout(CLOSED_S + 10), asyncio.TaskGroup() as tasks:
            for client in [*heads, *posts]:
                tasks.create_task(client.run())
            served = tasks.create_task(ask(running, 8.0))
        assert {status for status, _ in served.result()} == {200}
        assert len(served.result()) > 20
        assert max(client.closed_after_s for client in [*heads, *posts]) < CLOSED_S
        assert all(client.answer.startswith(b"HTTP/1.1 408") for client in heads)
        statuses = {client.answer.split(b" ")[1] for client in posts if client.answer}
        assert statuses <= {b"401", b"403", b"408"}
        assert b"408" in statuses
