"""Engines that answer 4xx for reasons of their own: other engines serve the request, and the breaker counts it."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gateway.pools.engines import live_engine
from gateway.pools.engines.breaker import CLOSED, HALF_OPEN, HTTP_4XX, OPEN, THROTTLED
from gateway.pools.engines.engine_state import health_state
from routing.policy.policy_document import RoutingPolicy, Stage
from tests.gateway.proxy.test_handoff import serving
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import BODY, CHAT, KEY, ServedGateway, served
from tests.patience import until

ROUND_ROBIN = RoutingPolicy(placement=Stage(name="round_robin"), order=Stage(name="fifo"))
REJECTIONS = [401, 403, 404, 408, 425, 429, 503]


def breaker(gateway: ServedGateway, number: int = 0) -> Any:
    return gateway.pool.engines[f"engine-{number}"].breaker


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", REJECTIONS)
async def test_a_client_sees_no_rejection_that_only_one_engine_returns(
    tmp_path: Path, status: int, stream: bool
) -> None:
    async with (
        ScriptedEngine() as bad,
        ScriptedEngine() as good,
        served([bad.url, good.url], tmp_path, policy=ROUND_ROBIN) as gateway,
    ):
        bad.status = status
        for _ in range(12):
            async with gateway.client.post(
                gateway.url + CHAT, json={**BODY, "stream": stream}, headers={"authorization": f"Bearer {KEY}"}
            ) as response:
                assert response.status == 200
                assert b"Hel" in await response.read()
        assert breaker(gateway).state == OPEN
        assert breaker(gateway).cause == (THROTTLED if status in (429, 503) else HTTP_4XX)
        assert not breaker(gateway).lost, "it answers, so requests under way on it go on"
        assert len(bad.bodies) <= 3


async def test_one_rejecting_engine_of_four_does_not_attract_requests(tmp_path: Path) -> None:
    async with (
        ScriptedEngine() as bad,
        ScriptedEngine() as one,
        ScriptedEngine() as two,
        ScriptedEngine() as three,
        served([bad.url, one.url, two.url, three.url], tmp_path) as gateway,
    ):
        bad.status = 401
        for engine in (one, two, three):
            engine.pause_s = 0.1

        async def client(number: int) -> list[int]:
            prompts = (
                {**BODY, "messages": [{"role": "user", "content": f"{number} {turn} " * 40}]} for turn in range(6)
            )
            return [(await gateway.post(CHAT, body))[0] for body in prompts]

        seen = await asyncio.gather(*(client(number) for number in range(8)))
        assert {status for item in seen for status in item} == {200}
        assert breaker(gateway).cause == HTTP_4XX


@pytest.mark.parametrize("status", REJECTIONS)
async def test_an_error_of_all_engines_is_relayed_and_opens_no_breaker(tmp_path: Path, status: int) -> None:
    async with (
        ScriptedEngine() as one,
        ScriptedEngine() as two,
        served([one.url, two.url], tmp_path, policy=ROUND_ROBIN) as gateway,
    ):
        assert (await gateway.post(CHAT, BODY))[0] == 200
        assert (await gateway.post(CHAT, BODY))[0] == 200
        one.status = two.status = status
        one.error_headers = two.error_headers = {"retry-after": "7"}
        for _ in range(8):
            got, answer, headers = await gateway.post(CHAT, BODY)
            if status in (401, 403):
                assert (got, answer["error"]["code"]) == (502, "engine_rejects_key")
                assert "HEADWAY_ENGINE_API_KEY" in answer["error"]["message"]
            else:
                assert (got, answer["error"]["message"], headers["retry-after"]) == (status, "engine says no", "7")
        assert breaker(gateway, 0).accepts
        assert breaker(gateway, 1).accepts
        assert len(gateway.pool.router.reservations) == 0


async def test_an_engine_that_rejects_the_gateways_key_is_named_at_start_and_on_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ScriptedEngine() as good, ScriptedEngine() as bad:
        bad.models_status = 403
        async with served([good.url, bad.url], tmp_path, policy=ROUND_ROBIN) as gateway:
            engines = gateway.pool.engines

            def state(name: str) -> tuple[str, str]:
                return health_state(engines[name], time.monotonic(), accepts=True)

            await until(lambda: engines["engine-1"].key_rejected)
            assert state("engine-0") == ("serving", "")
            assert state("engine-1")[0] == "degraded"
            assert "Set HEADWAY_ENGINE_API_KEY of the gateways" in state("engine-1")[1]
            gateway.gateway._sampler.publish()
            assert 'headway_engine_rejects_key{engine="engine-1"} 1' in await gateway.metrics()

            bad.models_status = 200
            good.models_status = good.status = bad.status = 401
            assert (await gateway.post(CHAT, BODY))[1]["error"]["code"] == "engine_rejects_key"
            await until(lambda: engines["engine-0"].key_rejected or not engines["engine-1"].key_rejected)

            good.models_status = 200
            monkeypatch.setattr(live_engine, "MODELS_S", 0.0)
            for engine in engines.values():
                engine.doubt_models()
            await until(lambda: not any(engine.key_rejected for engine in engines.values()))
            gateway.gateway._sampler.publish()
            assert "headway_engine_rejects_key{" not in await gateway.metrics()


@pytest.mark.parametrize("status", [429, 503])
async def test_a_busy_engine_is_paused_briefly_and_clients_get_retry_after(tmp_path: Path, status: int) -> None:
    """vLLM at its --max-num-queued-reqs answers 503 without Retry-After."""
    async with (
        ScriptedEngine() as busy,
        ScriptedEngine() as other,
        served([busy.url, other.url], tmp_path, policy=ROUND_ROBIN) as gateway,
    ):
        busy.status = status
        for _ in range(6):
            assert (await gateway.post(CHAT, BODY))[0] == 200
        assert (breaker(gateway).cause, breaker(gateway).outlier) == (THROTTLED, True)
        busy.status = 200
        await until(lambda: breaker(gateway).accepts)
        busy.status = other.status = status
        got, _, headers = await gateway.post(CHAT, BODY)
        assert (got, headers["retry-after"]) == (status, "1")


async def test_a_rejection_of_the_only_engine_is_relayed_immediately(tmp_path: Path) -> None:
    async with ScriptedEngine() as only, served([only.url], tmp_path) as gateway:
        only.status = 404
        assert (await gateway.post(CHAT, BODY))[0] == 404
        assert len(only.bodies) == 1


@pytest.mark.parametrize("status", [400, 422])
async def test_a_fault_of_the_request_is_relayed_immediately(tmp_path: Path, status: int) -> None:
    async with (
        ScriptedEngine() as one,
        ScriptedEngine() as two,
        served([one.url, two.url], tmp_path) as gateway,
    ):
        one.status = two.status = status
        assert (await gateway.post(CHAT, BODY))[0] == status
        assert len(one.bodies) + len(two.bodies) == 1
        assert breaker(gateway, 0).accepts
        assert breaker(gateway, 1).accepts


async def test_several_rejecting_engines_do_not_attract_requests(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(ScriptedEngine()) for _ in range(8)]
        gateway = await stack.enter_async_context(served([engine.url for engine in engines], tmp_path))
        for _ in range(8):
            await gateway.post(CHAT, BODY)
        for bad in engines[:3]:
            bad.status = 401
        seen = [(await gateway.post(CHAT, {**BODY, "user": str(turn)}))[0] for turn in range(30)]
        assert seen.count(200) >= 29, "one request may meet all three before anything is known of them"


@pytest.mark.parametrize("status", [500, 404])
async def test_a_request_that_fails_everywhere_ejects_no_engine_of_a_large_pool(tmp_path: Path, status: int) -> None:
    def answer(engine: ScriptedEngine) -> None:
        engine.status = status if "poison" in str(engine.bodies[-1]) else 200

    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(ScriptedEngine()) for _ in range(8)]
        for engine in engines:
            engine.on_request = partial(answer, engine)
        gateway = await stack.enter_async_context(served([item.url for item in engines], tmp_path, policy=ROUND_ROBIN))
        poison = {**BODY, "messages": [{"role": "user", "content": "poison"}]}
        for _ in range(40):
            got, answered, _ = await gateway.post(CHAT, poison)
            assert (got, answered["error"]["message"]) == (status, "engine says no")
        assert {breaker(gateway, number).state for number in range(8)} <= {CLOSED, HALF_OPEN}
        seen = [(await gateway.post(CHAT, {**BODY, "user": str(turn)}))[0] for turn in range(16)]
        assert seen == [200] * 16
        assert all(breaker(gateway, number).accepts for number in range(8))


async def test_rejections_consume_the_retry_budget(tmp_path: Path) -> None:
    async with (
        ScriptedEngine() as one,
        ScriptedEngine() as two,
        served([one.url, two.url], tmp_path, policy=ROUND_ROBIN) as gateway,
    ):
        one.status = two.status = 429
        results = await asyncio.gather(*(gateway.post(CHAT, BODY) for _ in range(30)))
        assert {status for status, _, _ in results} <= {429, 503}
        assert all(int(headers["retry-after"]) >= 1 for status, _, headers in results if status == 503)
        assert gateway.pool.retry_budget.retrying == 0
        assert len(one.bodies) + len(two.bodies) <= 30 + max(3, 6) * 2


@pytest.mark.parametrize("status", [401, 404, 429])
async def test_a_rejecting_prefill_engine_is_avoided(tmp_path: Path, status: int) -> None:
    async with serving(tmp_path) as fleet:
        fleet.prefill[0].status = status
        for number in range(8):
            got, _, _ = await fleet.gateway.post(CHAT, {**BODY, "user": str(number)})
            assert got == 200
        assert len(fleet.prefill[0].bodies) <= 3
        assert fleet.is_idle()


@pytest.mark.parametrize("status", [401, 429])
async def test_a_rejecting_decode_engine_is_avoided(tmp_path: Path, status: int) -> None:
    async with serving(tmp_path) as fleet:
        fleet.decode[0].status = status
        for number in range(8):
            got, _, _ = await fleet.gateway.post(CHAT, {**BODY, "user": str(number)})
            assert got == 200
        assert len(fleet.decode[0].bodies) <= 3
        assert fleet.is_idle()


@pytest.mark.parametrize("status", [401, 404])
async def test_an_error_of_all_prefill_engines_is_relayed(tmp_path: Path, status: int) -> None:
    async with serving(tmp_path) as fleet:
        for engine in fleet.prefill:
            engine.status = status
        for _ in range(5):
            got, answer, _ = await fleet.gateway.post(CHAT, BODY)
            expected = (502, "engine_rejects_key") if status == 401 else (404, 404)
            assert (got, answer["error"]["code"]) == expected
        assert all(breaker(fleet.gateway, number).accepts for number in range(4))
        assert fleet.is_idle()
