"""Failing engines: another engine takes over in time, a started response ends with an error, retries are bounded."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from gateway.app import AppSettings
from gateway.base.settings import EngineLimits, GatewaySettings
from gateway.proxy.attempt import RelaySettings
from gateway.proxy.forwarded_request import ForwardedRequest
from routing.policy.policy_document import RoutingPolicy, Stage
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import BODY, CHAT, KEY, MODEL, STREAM, ServedGateway, served
from tests.patience import PATIENCE_S, until

ROUND_ROBIN = RoutingPolicy(placement=Stage(name="round_robin"), order=Stage(name="fifo"))


@pytest.mark.parametrize("body", [BODY, STREAM])
@pytest.mark.parametrize("fault", ["dies", "500", "503"])
async def test_a_failure_before_the_first_byte_is_retried_elsewhere(
    tmp_path: Path, fault: str, body: dict[str, Any]
) -> None:
    async with (
        ScriptedEngine() as bad,
        ScriptedEngine() as good,
        served([bad.url, good.url], tmp_path, policy=ROUND_ROBIN) as gateway,
    ):
        bad.die_before_first_byte = fault == "dies"
        bad.status = 200 if fault == "dies" else int(fault)
        for _ in range(4):
            async with gateway.client.post(
                gateway.url + CHAT, json=body, headers={"authorization": f"Bearer {KEY}"}
            ) as response:
                assert response.status == 200
                assert b"Hel" in await response.read()
                decision_id = response.headers["x-headway-decision"]
        assert len(good.bodies) == 4
        assert 1 <= len(bad.bodies) <= 4
        assert "headway_retries_total" in await gateway.metrics()
        _, explained = await gateway.get(f"/api/v1/explain/{decision_id}")
        assert explained["decision"]["engine_id"] == explained["attempts"][-1] == "engine-1"
        assert gateway.is_idle()


@pytest.fixture
def no_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def _prompts() -> int:
    # isinstance would load what lazy objects of other tests promise.
    return sum(type(item) is ForwardedRequest for item in gc.get_objects())


@pytest.mark.parametrize("body", [BODY, STREAM])
@pytest.mark.parametrize("status", [200, 400, 500])
@pytest.mark.usefixtures("no_collections")
async def test_answered_requests_leave_no_prompt_for_a_garbage_collection(
    gateway: ServedGateway, engine: ScriptedEngine, status: int, body: dict[str, Any]
) -> None:
    engine.status, before = status, _prompts()
    for _ in range(3):
        headers = {"authorization": f"Bearer {KEY}"}
        async with gateway.client.post(gateway.url + CHAT, json=body, headers=headers) as response:
            await response.read()
    await until(lambda: _prompts() == before)
    assert gateway.is_idle()


@pytest.mark.parametrize("fault", ["dies", "dies in the stream", "client leaves"])
@pytest.mark.usefixtures("no_collections")
async def test_failed_requests_leave_no_prompt_for_a_garbage_collection(
    gateway: ServedGateway, engine: ScriptedEngine, fault: str
) -> None:
    engine.chunks, engine.stall = ["a", "b", "c"], fault == "client leaves"
    engine.die_before_first_byte = fault == "dies"
    engine.die_after_chunks = 2 if fault == "dies in the stream" else None
    before = _prompts()
    for _ in range(3):
        call = asyncio.create_task(gateway.post(CHAT, STREAM))
        if fault == "client leaves":
            await engine.received.wait()
            engine.received.clear()
            call.cancel()
        await asyncio.wait((call,))
        del call
    await until(lambda: gateway.is_idle() and _prompts() == before)


async def test_a_killed_engine_fails_no_request_without_a_first_byte(tmp_path: Path) -> None:
    async with (
        ScriptedEngine() as one,
        ScriptedEngine() as two,
        served([one.url, two.url], tmp_path, policy=ROUND_ROBIN) as gateway,
    ):
        one.stall = True
        calls = [asyncio.create_task(gateway.post(CHAT, {**BODY, "seed": number})) for number in range(12)]
        async with asyncio.timeout(PATIENCE_S):
            await one.received.wait()
            await asyncio.sleep(0.1)
        await one.stop()
        async with asyncio.timeout(15):
            results = await asyncio.gather(*calls)
        assert [status for status, _, _ in results] == [200] * 12
        assert len(two.bodies) == 12
        assert gateway.is_idle()
        await asyncio.sleep(0)
        assert not gateway.pool.engines["engine-0"].breaker.accepts


async def test_a_stream_whose_engine_dies_ends_with_an_error_within_a_second(
    gateway: ServedGateway, engine: ScriptedEngine
) -> None:
    engine.chunks = ["a", "b", "c"]
    engine.die_after_chunks = 2
    async with asyncio.timeout(1):
        chunks, headers = await gateway.stream()
    events = [json.loads(event[6:]) for event in b"".join(chunks).split(b"\n\n") if event]
    assert [event["choices"][0]["delta"]["content"] for event in events[:-1]] == ["a", "b"]
    assert events[-1]["error"]["code"] == "broken_stream"
    _, explained = await gateway.get(f"/api/v1/explain/{headers['x-headway-decision']}")
    assert (explained["outcome"]["state"], explained["outcome"]["error"]) == ("failed", "broken_stream")
    assert gateway.is_idle()


async def test_the_openai_client_raises_on_a_broken_stream(gateway: ServedGateway, engine: ScriptedEngine) -> None:
    engine.die_after_chunks = 1
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=KEY, max_retries=0) as client:
        stream = await client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "hi"}], stream=True
        )
        with pytest.raises(openai.APIError):
            async for _ in stream:
                pass


async def test_when_all_engines_return_503_retries_stay_within_the_budget(tmp_path: Path) -> None:
    async with (
        ScriptedEngine() as one,
        ScriptedEngine() as two,
        served([one.url, two.url], tmp_path, policy=ROUND_ROBIN) as gateway,
    ):
        one.status = two.status = 503
        results = await asyncio.gather(*(gateway.post(CHAT, BODY) for _ in range(30)))
        assert {status for status, _, _ in results} <= {503, 429}
        assert all(int(headers["retry-after"]) >= 1 for _, _, headers in results)
        assert gateway.pool.retry_budget.retrying == 0
        assert len(one.bodies) + len(two.bodies) <= 30 + max(3, 6) * 2
        assert gateway.is_idle()


async def test_unreachable_engines_result_in_503_with_retry_after(tmp_path: Path) -> None:
    policy = RoutingPolicy(max_wait_s=0.3)
    async with ScriptedEngine() as engine, served([engine.url], tmp_path, policy=policy) as gateway:
        await engine.stop()
        async with asyncio.timeout(PATIENCE_S):
            status, answer, headers = await gateway.post(CHAT, BODY)
    assert status in {429, 503}
    assert answer["error"]["code"] in {"engine_unreachable", "no_engine", "wait_expired"}
    assert int(headers["retry-after"]) >= 1


@pytest.mark.parametrize("body", [BODY, STREAM])
async def test_a_response_that_never_ends_is_abandoned_and_never_started_twice(
    tmp_path: Path, body: dict[str, Any]
) -> None:
    settings = AppSettings(relay=RelaySettings(answer_s=0.5, hang_s=60.0))
    async with (
        ScriptedEngine() as one,
        ScriptedEngine() as two,
        served([one.url, two.url], tmp_path, settings=settings, policy=ROUND_ROBIN, max_prompt_tokens=512) as gateway,
    ):
        one.stall = two.stall = True
        async with asyncio.timeout(PATIENCE_S):
            status, answer, _ = await gateway.post(CHAT, {**body, "max_tokens": 1})
        assert (status, answer["error"]["code"]) == (504, "engine_timeout")
        assert len(one.bodies) + len(two.bodies) == 1
        assert gateway.is_idle()


async def test_an_engine_that_trickles_bytes_does_not_hold_a_request_forever(tmp_path: Path) -> None:
    settings = AppSettings(relay=RelaySettings(answer_s=1.5, hang_s=60.0))
    async with ScriptedEngine() as engine, served([engine.url], tmp_path, settings=settings) as gateway:
        engine.chunks, engine.pause_s = ["drip"] * 10_000, 0.1
        async with asyncio.timeout(PATIENCE_S):
            chunks, _ = await gateway.stream({**STREAM, "max_tokens": 1})
        assert b"broken_stream" in chunks[-1]
        await engine.disconnected.wait()
        assert gateway.is_idle()


async def test_a_first_attempt_ends_at_its_engine_before_the_second_begins(tmp_path: Path) -> None:
    order: list[str] = []
    async with (
        ScriptedEngine() as one,
        ScriptedEngine() as two,
        served([one.url, two.url], tmp_path, policy=ROUND_ROBIN) as gateway,
    ):
        for name, engine in (("one", one), ("two", two)):
            engine.on_request = lambda name=name: order.append(f"{name} begins")  # type: ignore[misc]
            engine.on_disconnect = lambda name=name: order.append(f"{name} is cancelled")  # type: ignore[misc]
        one.stall = True
        asked = [asyncio.create_task(gateway.post(CHAT, {**BODY, "seed": number})) for number in range(2)]
        await one.received.wait()
        gateway.pool.engines["engine-0"].breaker.record_hang("still", 0.0)
        assert [status for status, _, _ in await asyncio.gather(*asked)] == [200, 200]
        moved = order.index("one is cancelled")
        assert order[moved:] == ["one is cancelled", "two begins"]


async def test_a_slow_non_streaming_response_runs_once(tmp_path: Path) -> None:
    """The engine's progress is not visible before the response, so no time to the first byte is too long."""
    settings = AppSettings(relay=RelaySettings(answer_s=60.0, hang_s=0.5))
    async with (
        ScriptedEngine() as one,
        ScriptedEngine() as two,
        served([one.url, two.url], tmp_path, settings=settings, policy=ROUND_ROBIN) as gateway,
    ):
        one.start_s = two.start_s = 2.0
        status, _, _ = await gateway.post(CHAT, BODY)
        assert (status, len(one.bodies) + len(two.bodies)) == (200, 1)


async def test_a_stream_whose_engine_stalls_for_the_hang_limit_ends_with_an_error(tmp_path: Path) -> None:
    impatient = GatewaySettings(sample_interval_s=0.05, limits=EngineLimits(hang_limit_s=0.5))
    async with ScriptedEngine() as engine, served([engine.url], tmp_path, gateway_settings=impatient) as gateway:
        engine.chunks = ["a", "b"]
        engine.pause_s = 30.0
        async with asyncio.timeout(PATIENCE_S):
            chunks, _ = await gateway.stream()
        assert b"broken_stream" in chunks[-1]
        assert gateway.is_idle()
