"""Connection limits of one process, in total and per address."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.server.http import http_protocol
from gateway.server.http.connection_limit import ConnectionLimit
from gateway.server.http.edge import Edge
from tests.gateway.raw_http import RawConnection, served_app
from tests.gateway.server.http.test_edge import Echo
from tests.patience import PATIENCE_S


def test_one_address_gets_half_of_the_connections() -> None:
    limit = ConnectionLimit(4)
    assert limit.enter("10.0.0.1", 1)
    assert limit.enter("10.0.0.1", 2)
    assert limit.enter("10.0.0.1", 3) is None
    assert limit.enter("10.0.0.2", 3)
    limit.leave("10.0.0.1")
    assert limit.enter("10.0.0.1", 3)


def test_a_local_proxy_can_use_all_connections() -> None:
    limit = ConnectionLimit(4)
    assert [limit.enter("127.0.0.1", number + 1) for number in range(5)] == ["", "", "", "", None]


class Held:
    """A connection that a test keeps idle."""

    def __init__(self, used_s: float) -> None:
        self.used_s = used_s
        self.closed = False

    def close_idle(self) -> None:
        self.closed = True


def test_the_longest_idle_connection_makes_room() -> None:
    limit = ConnectionLimit(2)
    for number in (1, 2):
        assert limit.enter(f"10.0.0.{number}", number)
    old, new = Held(1.0), Held(2.0)
    limit.idle("10.0.0.2", new)
    limit.idle("10.0.0.1", old)
    assert limit.enter("10.0.0.3", 3)
    assert (old.closed, new.closed) == (True, False)
    limit.busy("10.0.0.2", new)
    assert limit.enter("10.0.0.4", 3) is None
    assert not new.closed


def test_requests_that_bypass_the_parser_reset_the_idle_time() -> None:
    limit = ConnectionLimit(2)
    used, idle = Held(1.0), Held(2.0)
    for number, item in enumerate((used, idle)):
        limit.enter("127.0.0.1", number)
        limit.idle("", item)
    used.used_s = 3.0
    assert limit.enter("127.0.0.1", 3) == ""
    assert (used.closed, idle.closed) == (False, True)


def test_an_address_at_its_half_displaces_only_its_own_connections() -> None:
    limit = ConnectionLimit(4)
    others, own = Held(1.0), Held(2.0)
    assert limit.enter("10.0.0.9", 1)
    limit.idle("10.0.0.9", others)
    assert limit.enter("10.0.0.1", 2)
    assert limit.enter("10.0.0.1", 3)
    assert limit.enter("10.0.0.1", 4) is None
    limit.idle("10.0.0.1", own)
    assert limit.enter("10.0.0.1", 4)
    assert (others.closed, own.closed) == (False, True)


@pytest.fixture
async def url(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    limit = ConnectionLimit(3)
    monkeypatch.setattr(http_protocol, "limit_of", lambda loop: limit)
    async with served_app(Edge(Echo())) as url:
        yield url


ASK = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


async def test_a_new_connection_replaces_an_idle_one(url: str) -> None:
    held = []
    async with asyncio.timeout(PATIENCE_S):
        for _ in range(3):
            held.append(await RawConnection.open(url))
            await held[-1].send(ASK)
            assert (await held[-1].answer())[0] == 200
        await held[0].send(ASK)
        assert (await held[0].answer())[0] == 200
        new = await RawConnection.open(url)
        await new.send(ASK)
        assert (await new.answer())[0] == 200
        assert await held[1].closed()
        for item in (held[0], held[2], new):
            await item.send(ASK)
            assert (await item.answer())[0] == 200
    for item in (*held, new):
        await item.close()


async def test_a_connection_over_the_limit_gets_503_with_retry_after(url: str) -> None:
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
