"""Work ends with its client and leaves no state behind.

The client's address behind the relay.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.base.asgi_types import Receive, Scope, Send
from gateway.server.http.forwarded_client import HEADER, ForwardedClient, client_header
from gateway.server.http.http_exchange import ClientGoneError, Exchange, while_connected


class Client:
    """A client that disconnects on request."""

    def __init__(self) -> None:
        self.leave = asyncio.Event()

    async def receive(self) -> Any:
        """Wait for the disconnect."""
        await self.leave.wait()
        return {"type": "http.disconnect"}

    async def send(self, _: Any) -> None:
        """Ignore sent messages."""

    @property
    def exchange(self) -> Exchange:
        """Return its request."""
        return Exchange({"type": "http", "method": "POST", "path": "/", "headers": []}, self.receive, self.send)


async def test_the_result_of_the_work_is_returned() -> None:
    async def work() -> int:
        await asyncio.sleep(0)
        return 7

    assert await while_connected(Client().exchange, work()) == 7


async def test_an_error_of_the_work_is_raised() -> None:
    async def work() -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await while_connected(Client().exchange, work())


async def test_work_is_cancelled_and_awaited_when_the_client_disconnects() -> None:
    client = Client()
    ended = []

    async def work() -> int:
        try:
            client.leave.set()
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            ended.append(True)
        return 7

    with pytest.raises(ClientGoneError):
        await while_connected(client.exchange, work())
    assert ended == [True]


async def test_a_result_after_the_disconnect_is_undone() -> None:
    client = Client()
    undone: list[int] = []

    async def work() -> int:
        client.leave.set()
        for _ in range(5):
            await asyncio.sleep(0)
        return 7

    async def stubborn() -> int:
        try:
            return await work()
        except asyncio.CancelledError:
            return 7

    with pytest.raises(ClientGoneError):
        await while_connected(client.exchange, stubborn(), undone.append)
    assert undone == [7]


async def test_an_external_cancellation_ends_the_work() -> None:
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    task = asyncio.create_task(while_connected(Client().exchange, work()))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def seen_behind(headers: list[tuple[bytes, bytes]], peer: tuple[str, int] | None = None) -> Scope:
    seen: list[Scope] = []

    async def app(scope: Scope, _receive: Receive, _send: Send) -> None:
        seen.append(scope)

    async def never(*_: Any) -> Any:
        raise AssertionError

    await ForwardedClient(app)({"type": "http", "client": peer, "headers": headers}, never, never)
    return seen[0]


@pytest.mark.parametrize("client", [("10.1.2.3", 4567), ("2001:db8::1", 1), ("::ffff:10.0.0.1", 65535)])
async def test_an_address_is_relayed_unchanged(client: tuple[str, int]) -> None:
    scope = await seen_behind([(b"host", b"localhost"), client_header({"client": client})])
    assert scope["client"] == client
    assert scope["headers"] == [(b"host", b"localhost")]


@pytest.mark.parametrize("header", [b"", b"10.0.0.1", b" 5", b"10.0.0.1 x", b"\xff"])
async def test_a_client_without_address_stays_without_one(header: bytes) -> None:
    assert (await seen_behind([(HEADER, header)]))["client"] is None
    assert (await seen_behind([]))["client"] is None


async def test_a_client_over_tcp_cannot_claim_another_address() -> None:
    scope = await seen_behind([client_header({"client": ("10.1.2.3", 4567)})], peer=("192.0.2.1", 5))
    assert scope["client"] == ("192.0.2.1", 5)
    assert scope["headers"] == []
