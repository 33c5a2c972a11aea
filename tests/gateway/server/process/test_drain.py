"""A gateway that shuts down: new work goes elsewhere, running requests can finish, and each request gets a response.

A server asked to end stops serving after the grace period and the last request, or at the limit.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvicorn

from gateway.server.process.drain import Drain
from gateway.server.process.draining_server import GRACE_S, DrainingServer
from gateway.server.process.shutdown import ProcessEnd
from routing.policy.policy_document import RoutingPolicy
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import BODY, CHAT, KEY, MODEL, ServedGateway, served
from tests.patience import until

PROMPT = {"model": MODEL, "token_ids": list(range(64))}


def _asking(gateway: ServedGateway, body: dict[str, Any]) -> Any:
    return gateway.client.post(gateway.url + CHAT, json=body, headers={"authorization": f"Bearer {KEY}"})


async def _ready(gateway: ServedGateway) -> int:
    return (await gateway.get("/ready", key=None))[0]


async def test_a_draining_gateway_is_not_ready_but_alive(gateway: ServedGateway) -> None:
    assert await _ready(gateway) == 200
    gateway.app.drain.begin()
    assert await _ready(gateway) == 503
    assert (await gateway.get("/live", key=None))[0] == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [("/api/v1/route", PROMPT), ("/api/v1/route/batch", [PROMPT]), (CHAT, BODY), ("/v1/completions", BODY)],
)
async def test_new_work_is_redirected_to_another_connection(
    gateway: ServedGateway, engine: ScriptedEngine, path: str, body: Any
) -> None:
    gateway.app.drain.begin()
    status, answer, headers = await gateway.post(path, body)
    assert status == 503
    assert answer["error"]["code"] == "shutting_down"
    assert headers["retry-after"] == "1"
    assert headers["connection"] == "close"
    assert not engine.bodies
    assert len(gateway.pool.router.reservations) == 0


async def test_a_head_known_before_the_drain_gets_no_decision(gateway: ServedGateway) -> None:
    for _ in range(3):
        assert (await gateway.post("/api/v1/route", PROMPT))[0] == 200
    gateway.app.drain.begin()
    assert (await gateway.post("/api/v1/route", PROMPT))[0] == 503


async def test_the_end_of_a_decided_request_is_still_accepted(gateway: ServedGateway) -> None:
    _, decision, _ = await gateway.post("/api/v1/route", PROMPT)
    gateway.app.drain.begin()
    status, _, _ = await gateway.post(f"/api/v1/requests/{decision['decision_id']}/complete", {})
    assert status == 200
    assert len(gateway.pool.router.reservations) == 0


async def test_a_running_stream_continues_to_its_end(gateway: ServedGateway, engine: ScriptedEngine) -> None:
    engine.chunks, engine.pause_s = ["tok "] * 20, 0.02
    async with _asking(gateway, {**BODY, "stream": True}) as response:
        await response.content.readany()
        gateway.app.drain.begin()
        rest = await response.content.read()
    assert rest.endswith(b"data: [DONE]\n\n")
    record = gateway.app.recent.get(response.headers["x-headway-decision"])
    assert record is not None
    assert (record.outcome, record.error) == ("completed", "")
    # The client has the end before the server has left the request.
    await until(lambda: gateway.app.drain.under_way == 0)


async def test_a_stream_cut_off_by_shutdown_ends_with_an_error_event_and_outcome(
    gateway: ServedGateway, engine: ScriptedEngine
) -> None:
    engine.chunks, engine.pause_s = ["tok "] * 1000, 0.05
    async with _asking(gateway, {**BODY, "stream": True}) as response:
        await response.content.readany()
        gateway.app.drain.cut_off()
        rest = await response.content.read()
    error = json.loads(rest.rpartition(b"data: ")[2])["error"]
    assert error["code"] == "shutdown"
    record = gateway.app.recent.get(response.headers["x-headway-decision"])
    assert record is not None
    assert (record.outcome, record.error) == ("failed", "shutdown")
    assert gateway.pool.progress.engine("engine-0").failures_in_row == 0
    assert len(gateway.pool.router.reservations) == 0


async def test_a_response_not_yet_begun_becomes_a_503_to_retry(gateway: ServedGateway, engine: ScriptedEngine) -> None:
    engine.stall = True
    asking = asyncio.create_task(gateway.post(CHAT, BODY))
    await engine.received.wait()
    gateway.app.drain.cut_off()
    status, answer, headers = await asking
    assert (status, answer["error"]["code"], headers["retry-after"]) == (503, "shutting_down", "1")


async def test_a_request_still_queued_when_the_drain_ends_is_rejected(engine: ScriptedEngine, tmp_path: Path) -> None:
    engine.stall = True
    policy = RoutingPolicy(prefill_window_tokens=1, lookahead_s=0.0)
    async with served([engine.url], tmp_path, policy=policy) as gateway:
        first = asyncio.create_task(gateway.post(CHAT, {**BODY, "stream": True}))
        await engine.received.wait()
        second = asyncio.create_task(gateway.post(CHAT, BODY))
        while not gateway.pool.router.waiting:
            await asyncio.sleep(0.01)
        gateway.app.drain.begin()
        gateway.app.drain.cut_off()
        for status, answer, _ in await asyncio.gather(first, second):
            assert (status, answer["error"]["code"]) == (503, "shutting_down")
        assert "rejected" in await gateway.metrics()


async def test_a_client_that_disconnected_before_is_not_counted_as_cut_off(
    gateway: ServedGateway, engine: ScriptedEngine
) -> None:
    engine.chunks, engine.pause_s = ["tok "] * 1000, 0.05
    async with aiohttp.ClientSession() as client:
        headers = {"authorization": f"Bearer {KEY}"}
        async with client.post(gateway.url + CHAT, json={**BODY, "stream": True}, headers=headers) as response:
            await response.content.readany()
    await engine.disconnected.wait()
    gateway.app.drain.cut_off()
    record = gateway.app.recent.get(response.headers["x-headway-decision"])
    assert record is not None
    assert (record.outcome, record.error) == ("cancelled", "client_gone")


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
