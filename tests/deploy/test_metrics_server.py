"""The proxies' counters are served on loopback, however many connections other local processes open."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack

import aiohttp
import pytest

from bench.live.loopback_ports import free_port
from deploy import metrics_server
from deploy.metrics_server import MAX_CONNECTIONS, lines, serving
from tests.kvstore.transfer.test_strangers import is_closed
from tests.patience import until

HALF_HEAD = b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: "


def counters() -> str:
    return lines("asked_total", "by", {"x": 1})


async def scrape(port: int) -> str:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as answer:
        return await answer.text()


async def test_strangers_get_few_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "HEAD_S", 3600.0)
    port, strangers = free_port(), list[socket.socket]()
    with ExitStack() as stack:
        async with serving(port, counters):
            for _ in range(100):
                stranger = await asyncio.to_thread(socket.create_connection, ("127.0.0.1", port))
                strangers.append(stack.enter_context(stranger))
            await until(lambda: sum(not is_closed(item) for item in strangers) <= MAX_CONNECTIONS)


async def test_strangers_hold_a_connection_only_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "HEAD_S", 0.3)
    port, strangers = free_port(), list[socket.socket]()
    with ExitStack() as stack:
        async with serving(port, counters):
            for number in range(MAX_CONNECTIONS):
                stranger = await asyncio.to_thread(socket.create_connection, ("127.0.0.1", port))
                strangers.append(stack.enter_context(stranger))
                stranger.send(HALF_HEAD[: number % 2 * 99])
            await until(lambda: all(map(is_closed, strangers)))
            assert 'asked_total{by="x"} 1' in await scrape(port)


@pytest.mark.parametrize("request_", [b"\x16\x03\x01\x02\x00", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\nx\r\n\r\n"])
async def test_malformed_requests_are_not_logged(request_: bytes, caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()
    async with serving(port, counters):
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.send(request_)
            await until(lambda: is_closed(stranger))
    assert not caplog.records


async def test_without_a_port_nothing_listens() -> None:
    async with serving(0, counters):
        pass
