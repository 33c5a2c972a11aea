"""SGLang's bootstrap handoff: both engines get the request at once and meet in a room."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from bench.live.loopback_ports import free_port
from gateway.app import AppSettings
from gateway.proxy.attempt import RelaySettings
from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_server.settings import EngineSettings
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import CHAT, KEY, MODEL, ServedGateway, served
from tests.patience import until
from tests.simulated_engine import serving

BODY = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Who computes, and who answers? " * 20}],
    "max_tokens": 9,
}
STREAM = {**BODY, "stream": True, "stream_options": {"include_usage": True}}
SETTINGS = AppSettings(relay=RelaySettings(answer_s=60.0, hang_s=20.0))


@asynccontextmanager
async def simulated(role: str) -> AsyncIterator[str]:
    profile = EngineProfile(block_tokens=16, num_blocks=512, recompute_last_block=True)
    settings = EngineSettings(
        port=free_port(), served_model=MODEL, seed=b"same", time_scale=50.0, profile=profile, flavor="sglang", role=role
    )  # type: ignore[arg-type]
    async with serving(settings):
        yield f"http://127.0.0.1:{settings.port}"


def handoffs(gateway: ServedGateway, outcome: str) -> float:
    return gateway.gateway.metrics.handoffs.value("pool", outcome)


def is_idle(gateway: ServedGateway) -> bool:
    router = gateway.pool.router
    router.check()
    return len(router.reservations) + len(router.waiting) + len(router.pairs.legs) == 0


@pytest.mark.parametrize("streamed", [False, True])
async def test_two_simulated_engines_serve_a_request_together(tmp_path: Path, streamed: bool) -> None:
    async with (
        simulated("prefill") as prefill,
        simulated("decode") as decode,
        served([prefill, decode], tmp_path, settings=SETTINGS, roles=["prefill", "decode"]) as gateway,
    ):
        noted = []
        for _ in range(2):
            sent = {"authorization": f"Bearer {KEY}"}
            body = STREAM if streamed else BODY
            async with gateway.client.post(gateway.url + CHAT, json=body, headers=sent) as response:
                text = await response.text()
                assert response.status == 200, text
                name = response.headers["x-headway-decision"]
            events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
            usage = (events[-1] if streamed else json.loads(text))["usage"]
            assert usage["completion_tokens"] == 9
            explained = (await gateway.get(f"/api/v1/explain/{name}"))[1]
            assert explained["outcome"]["state"] == "completed"
            assert explained["outcome"]["handed_over_after_s"] > 0
            noted.append((usage["prompt_tokens_details"]["cached_tokens"], explained["outcome"]["cached_tokens"]))
        assert noted[0] == (0, 0)
        assert noted[1][0] == noted[1][1] > 0, (
            "the tokens that the prefill engine had cached, which the response reports"
        )
        assert handoffs(gateway, "done") == 2
        # Without the KV of the prefill engine the decode engine has no answer.
        async with gateway.client.post(f"{prefill}/handoff_fault", json={"fault": "lose"}) as answer:
            assert answer.status == 200
        assert (await gateway.post(CHAT, BODY))[0] >= 500
        assert is_idle(gateway)


PREFILLS = {"disaggregation_mode": "prefill", "disaggregation_bootstrap_port": 8998}


@asynccontextmanager
async def scripted(tmp_path: Path, prefill: int = 2) -> AsyncIterator[tuple[list[ScriptedEngine], ServedGateway]]:
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(ScriptedEngine()) for _ in range(prefill + 1)]
        for engine in engines[:prefill]:
            engine.server_info = PREFILLS
        urls = [engine.url for engine in engines]
        roles = ["prefill"] * prefill + ["decode"]
        yield engines, await stack.enter_async_context(served(urls, tmp_path, settings=SETTINGS, roles=roles))


async def test_both_legs_name_the_same_room_at_the_prefill_engine(tmp_path: Path) -> None:
    async with scripted(tmp_path, prefill=1) as ((first, second), gateway):
        mine = {**BODY, "bootstrap_host": "evil", "bootstrap_room": 1, "temperature": 0.5}
        assert (await gateway.post(CHAT, {**mine, "stream": False}))[0] == 200
        (prefill,), (decode,) = first.bodies, second.bodies
        assert {name: prefill[name] for name in ("bootstrap_host", "bootstrap_port")} == {
            "bootstrap_host": "127.0.0.1",
            "bootstrap_port": 8998,
        }
        assert prefill["bootstrap_room"] == decode["bootstrap_room"] > 1
        assert "stream" not in prefill
        assert {**prefill, "stream": False} == decode
        assert (decode["max_tokens"], decode["temperature"]) == (9, 0.5)
        assert "kv_transfer_params" not in decode
        assert first.headers[0]["x-request-id"] == second.headers[0]["x-request-id"]
        assert is_idle(gateway)


@pytest.mark.parametrize("how", ["dies", "fails"])
async def test_a_failed_prefill_ends_the_decode_leg_and_another_pair_serves(tmp_path: Path, how: str) -> None:
    async with scripted(tmp_path) as (engines, gateway):
        bad, good, decode = engines
        bad.die_before_first_byte = how == "dies"
        bad.status = 500 if how == "fails" else 200
        decode.pause_s = 0.2
        for _ in range(4):
            assert (await gateway.post(CHAT, BODY))[0] == 200
            if bad.bodies:
                break
        assert bad.bodies and good.bodies
        assert handoffs(gateway, "prefill_failed") >= 1
        rooms = [body["bootstrap_room"] for body in decode.bodies]
        assert len(set(rooms)) == len(rooms), "an attempt has a room of its own"
        await until(lambda: is_idle(gateway))


async def test_a_response_before_the_prefill_failed_reaches_no_client(tmp_path: Path) -> None:
    async with scripted(tmp_path, prefill=1) as ((first, second), gateway):
        first.pause_s, first.status = 0.0, 200
        first.stall = True
        asked = asyncio.create_task(gateway.post(CHAT, BODY))
        await first.received.wait()
        await second.received.wait()
        await asyncio.sleep(0.2)
        assert not asked.done(), "the decode engine has answered, and the prefill engine has not"
        await first.stop()
        status, _, _ = await asked
        assert status >= 500
        assert handoffs(gateway, "done") == 0
        await until(lambda: is_idle(gateway))


async def test_a_client_error_is_relayed_from_the_prefill_engine(tmp_path: Path) -> None:
    async with scripted(tmp_path, prefill=1) as ((first, second), gateway):
        first.status = second.status = 400
        status, answer, headers = await gateway.post(CHAT, BODY)
        assert (status, answer["error"]["message"]) == (400, "engine says no")
        explained = (await gateway.get(f"/api/v1/explain/{headers['x-headway-decision']}"))[1]
        assert explained["outcome"]["state"] == "client_error"
        assert len(first.bodies) == 1
        assert is_idle(gateway)


async def test_a_client_disconnect_ends_both_legs(tmp_path: Path) -> None:
    async with scripted(tmp_path, prefill=1) as ((first, second), gateway):
        first.stall = second.stall = True
        asked = asyncio.create_task(gateway.post(CHAT, BODY))
        await first.received.wait()
        await second.received.wait()
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        await first.disconnected.wait()
        await second.disconnected.wait()
        await until(lambda: is_idle(gateway))
