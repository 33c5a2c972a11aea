"""A server asked to end stops serving after the grace period and the last request, or at the limit."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import uvicorn

from gateway.server.process.drain import Drain
from gateway.server.process.draining_server import GRACE_S, DrainingServer
from gateway.server.process.shutdown import ProcessEnd


class Ended:
    """A server with a clock controlled by the test."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.drain = Drain(lambda: None)
        self.gone = threading.Event()
        self.end = ProcessEnd(60.0, exit_now=lambda _: self.gone.set(), clock=lambda: self.now)
        self.server = DrainingServer(uvicorn.Config("app"), self.drain, self.end, clock=lambda: self.now)

    async def stops_after(self, seconds: float) -> bool:
        self.now += seconds
        return await self.server.on_tick(1)


@pytest.fixture
def ended() -> Iterator[Ended]:
    """Return a server whose watchdog ends with the test."""
    ended = Ended()
    yield ended
    ended.now = float("inf")
    assert not ended.end.asked or ended.gone.wait(30.0)


async def test_the_server_runs_until_it_is_asked_to_end(ended: Ended) -> None:
    assert not await ended.stops_after(1e6)
    assert not ended.drain.begun


async def test_without_work_it_listens_only_for_the_grace_period(ended: Ended) -> None:
    ended.end.ask("SIGTERM")
    assert not await ended.stops_after(0.0)
    assert ended.drain.begun
    assert not await ended.stops_after(GRACE_S - 0.1)
    assert await ended.stops_after(0.2)


async def test_running_requests_are_awaited_up_to_the_limit(ended: Ended) -> None:
    ended.drain.under_way = 1
    ended.end.ask("SIGTERM")
    await ended.stops_after(0.0)
    assert not await ended.stops_after(59.0)
    assert await ended.stops_after(1.1)


async def test_the_last_request_ends_the_drain(ended: Ended) -> None:
    ended.drain.under_way = 1
    ended.end.ask("SIGTERM")
    await ended.stops_after(0.0)
    assert not await ended.stops_after(30.0)
    ended.drain.under_way = 0
    assert await ended.stops_after(0.1)


async def test_ctrl_c_waits_for_nothing(ended: Ended) -> None:
    ended.drain.under_way = 1
    ended.end.ask("SIGINT", drains=False)
    assert await ended.stops_after(0.0)
