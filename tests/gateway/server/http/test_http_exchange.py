"""Bodies in pieces, responses with their decision, and disconnected clients."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.server.http.http_exchange import ClientGoneError, Exchange, while_connected

SCOPE: dict[str, Any] = {"type": "http", "method": "POST", "path": "/", "headers": []}


def _exchange(*messages: Any, fails: bool = False) -> tuple[Exchange, list[Any]]:
    waiting, sent = list(messages), []

    async def receive() -> Any:
        return waiting.pop(0)

    async def send(message: Any) -> None:
        if fails:
            raise OSError
        sent.append(message)

    return Exchange(SCOPE, receive, send), sent


def _part(body: bytes, more: bool) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


async def test_a_body_is_read_whole() -> None:
    assert await _exchange(_part(b"abc", False))[0].body() == b"abc"
    assert (
        await _exchange(_part(b"a", True), {"type": "http.request", "more_body": True}, _part(b"c", False))[0].body()
        == b"ac"
    )


@pytest.mark.parametrize("messages", [[{"type": "http.disconnect"}], [_part(b"a", True), {"type": "http.disconnect"}]])
async def test_a_disconnect_before_the_end_of_the_body_is_a_gone_client(messages: list[Any]) -> None:
    with pytest.raises(ClientGoneError):
        await _exchange(*messages)[0].body()


async def test_a_response_names_its_decision_once_made() -> None:
    exchange, sent = _exchange()
    exchange.decision_id = "id-1"
    await exchange.answer(200, b"{}")
    assert dict(sent[0]["headers"])[b"x-headway-decision"] == b"id-1"
    assert dict(sent[0]["headers"])[b"content-length"] == b"2"
    assert exchange.started
    plain, sent = _exchange()
    await plain.answer(200, b"{}")
    assert b"x-headway-decision" not in dict(sent[0]["headers"])


async def test_a_disconnect_reported_by_the_server_counts_as_a_gone_client() -> None:
    for act in (
        lambda item: item.answer(200, b""),
        lambda item: item.start(200, []),
        lambda item: item.chunk(b""),
        lambda item: item.end(),
    ):
        with pytest.raises(ClientGoneError):
            await act(_exchange(fails=True)[0])


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
