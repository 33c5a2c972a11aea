"""How many connections one process takes, and how many from one place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.http import http_protocol
from gateway.http.connection_limit import ConnectionLimit
from gateway.http.edge import Edge
from tests.gateway.http.test_edge import Echo
from tests.gateway.raw_http import RawConnection, served_app
from tests.patience import PATIENCE_S


def test_one_address_gets_half_of_the_connections() -> None:
    limit = ConnectionLimit(4)
    assert limit.enter("10.0.0.1", 1)
    assert limit.enter("10.0.0.1", 2)
    assert limit.enter("10.0.0.1", 3) is None
    assert limit.enter("10.0.0.2", 3)
    limit.leave("10.0.0.1")
    assert limit.enter("10.0.0.1", 3)


def test_a_proxy_on_this_machine_gets_all_of_them() -> None:
    limit = ConnectionLimit(4)
    assert [limit.enter("127.0.0.1", number + 1) for number in range(5)] == ["", "", "", "", None]


@pytest.fixture
async def url(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    limit = ConnectionLimit(3)
    monkeypatch.setattr(http_protocol, "limit_of", lambda loop: limit)
    async with served_app(Edge(Echo())) as url:
        yield url


async def test_a_connection_too_many_is_told_to_come_back(url: str) -> None:
    held = [await RawConnection.open(url) for _ in range(3)]
    await asyncio.sleep(0.05)
    one_more = await RawConnection.open(url)
    async with asyncio.timeout(PATIENCE_S):
        status, headers, _ = await one_more.answer()
        assert (status, headers["retry-after"]) == (503, "1")
        assert await one_more.closed()
    await held[0].close()
    await asyncio.sleep(0.05)
    again = await RawConnection.open(url)
    await again.send(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    async with asyncio.timeout(PATIENCE_S):
        assert (await again.answer())[0] == 200
    for connection in (*held[1:], one_more, again):
        await connection.close()
