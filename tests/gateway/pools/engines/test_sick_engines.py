"""An engine with good /health that produces nothing gets no new work, and its requests move at the hang limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path

import msgspec
import pytest

from gateway.base.settings import BreakerSettings, EngineLimits, GatewaySettings
from gateway.contracts.snapshot import encode_snapshot
from gateway.gateway import SNAPSHOT_TOPIC
from routing.policy.policy_document import RoutingPolicy, Stage
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import KEY, MODEL, ServedGateway, served, snapshot
from tests.patience import until

BODY = {"model": MODEL, "messages": [{"role": "user", "content": "x" * 40}], "stream": True}
ROUND_ROBIN = RoutingPolicy(placement=Stage(name="round_robin"), order=Stage(name="fifo"))
SETTINGS = GatewaySettings(
    sample_interval_s=0.05,
    probe_interval_s=0.05,
    limits=EngineLimits(hang_limit_s=1.5),
    breaker=BreakerSettings(stall_s=0.3, trial_s=0.1),
)
PATIENT = replace(SETTINGS, limits=EngineLimits())
_seeds = count()
Two = tuple[ServedGateway, ScriptedEngine, ScriptedEngine]


@asynccontextmanager
async def two_engines(state_dir: Path, settings: GatewaySettings = SETTINGS) -> AsyncIterator[Two]:
    async with (
        ScriptedEngine() as sick,
        ScriptedEngine() as well,
        served([sick.url, well.url], state_dir, gateway_settings=settings, policy=ROUND_ROBIN) as gateway,
    ):
        yield gateway, sick, well


async def ask(gateway: ServedGateway) -> bytes:
    headers = {"authorization": f"Bearer {KEY}"}
    body = {**BODY, "seed": next(_seeds)}
    async with gateway.client.post(f"{gateway.url}/v1/chat/completions", json=body, headers=headers) as answer:
        assert answer.status == 200, await answer.read()
        return await answer.read()


async def test_requests_of_a_hung_engine_move_at_the_hang_limit_and_a_trial_restores_it(
    tmp_path: Path,
) -> None:
    async with two_engines(tmp_path) as (gateway, sick, _):
        sick.stall = True
        breaker = gateway.pool.engines["engine-0"].breaker
        answers = await asyncio.gather(*(ask(gateway) for _ in range(4)))
        assert all(answer.endswith(b"data: [DONE]\n\n") for answer in answers)
        assert (breaker.lost, breaker.hung, breaker.trips) == (True, True, 1)
        # /health stays 200 all the while, and a new request does not go there.
        before = len(sick.bodies)
        assert (await ask(gateway)).endswith(b"data: [DONE]\n\n")
        assert all(body.get("max_tokens") == 1 for body in sick.bodies[before:])
        sick.stall = False
        await until(lambda: breaker.accepts)
        assert not breaker.lost


async def test_an_engine_with_slow_first_tokens_gets_no_new_work_and_keeps_its_requests(tmp_path: Path) -> None:
    async with two_engines(tmp_path, PATIENT) as (gateway, slow, well):
        slow.start_s = 4.0
        # Another engine moves meanwhile, so the silence of this one means something.
        well.chunks, well.pause_s = ["on"] * 60, 0.1
        breaker = gateway.pool.engines["engine-0"].breaker
        asked = [asyncio.create_task(ask(gateway)) for _ in range(2)]
        await until(lambda: breaker.stalled)
        assert not breaker.lost
        assert "suspected" in breaker.reason
        asked += [asyncio.create_task(ask(gateway)) for _ in range(3)]
        for answer in await asyncio.gather(*asked):
            assert answer.endswith(b"data: [DONE]\n\n")
        await until(lambda: breaker.accepts)
        asked_of = [[body for body in item.bodies if body.get("max_tokens") != 1] for item in (slow, well)]
        assert list(map(len, asked_of)) == [1, 4], "no request was begun twice, and new ones went to the other engine"


async def test_a_health_verdict_of_the_job_stops_only_new_work(tmp_path: Path) -> None:
    async with two_engines(tmp_path, PATIENT) as (gateway, sick, well):
        sick.start_s = 1.0
        asked = [asyncio.create_task(ask(gateway)) for _ in range(2)]
        await sick.received.wait()
        shown = snapshot([sick.url, well.url], policy=ROUND_ROBIN)
        bad = msgspec.structs.replace(shown.engines[0], health="quarantined", health_reason="it crawls")
        gateway.gateway._bus.publish(
            SNAPSHOT_TOPIC,
            encode_snapshot(msgspec.structs.replace(shown, version=2, engines=(bad, shown.engines[1]))),
        )
        await until(lambda: not gateway.pool.accepts("engine-0"))
        for answer in await asyncio.gather(*asked):
            assert answer.endswith(b"data: [DONE]\n\n")
        assert (len(sick.bodies), sick.disconnected.is_set()) == (1, False)


async def test_streams_that_a_suspected_engine_has_started_stay_on_it(tmp_path: Path) -> None:
    async with two_engines(tmp_path, PATIENT) as (gateway, sick, well):
        sick.chunks, sick.pause_s = ["a", "b"], 3.0
        well.chunks, well.pause_s = ["on"] * 60, 0.1
        answers = await asyncio.gather(*(ask(gateway) for _ in range(2)))
        assert all(answer.endswith(b"data: [DONE]\n\n") for answer in answers)
        assert gateway.pool.engines["engine-0"].breaker.trips > 0


@pytest.mark.parametrize("status", [500, 503])
async def test_an_engine_that_fails_its_trial_request_stays_out(tmp_path: Path, status: int) -> None:
    async with two_engines(tmp_path) as (gateway, sick, _):
        sick.stall = True
        breaker = gateway.pool.engines["engine-0"].breaker
        await asyncio.gather(*(ask(gateway) for _ in range(2)))
        sick.stall, sick.status = False, status
        tried = len(sick.bodies)
        await until(lambda: len(sick.bodies) >= tried + 3)
        assert breaker.stalled


async def test_a_hung_engine_is_detected_without_samples_or_log(tmp_path: Path) -> None:
    async with two_engines(tmp_path) as (gateway, sick, _):
        for task in gateway.gateway._tasks:
            if task.get_name() in ("fleet samples", "request log", "affinity"):
                task.cancel()
        sick.stall = True
        breaker = gateway.pool.engines["engine-0"].breaker
        await asyncio.gather(*(ask(gateway) for _ in range(4)))
        assert (breaker.stalled, breaker.trips) == (True, 1)


async def test_requests_not_yet_started_on_a_paused_engine_move_until_it_resumes(
    tmp_path: Path,
) -> None:
    """Its responses come in one piece, so only its own report shows that it is idle."""
    async with two_engines(tmp_path) as (gateway, sick, _):
        sick.paused = True
        breaker = gateway.pool.engines["engine-0"].breaker
        body = {**BODY, "stream": False}
        asked = await asyncio.gather(*(gateway.post("/v1/chat/completions", body) for _ in range(4)))
        assert {status for status, _, _ in asked} == {200}
        assert (breaker.paused, breaker.reason) == (True, "it is paused")
        sick.paused = False
        await until(lambda: breaker.accepts)
