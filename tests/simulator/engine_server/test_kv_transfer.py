"""Two simulated engines hand a prompt over as vLLM's do, including the relevant failures."""

from __future__ import annotations

import asyncio

import pytest

from simulator.engine_models.engine_profile import EngineProfile
from tests.patience import PATIENCE_S, until
from tests.simulator.conftest import RunningEngine, StartEngine

PROMPT = "abcd" * 200
PROFILE = EngineProfile(block_tokens=16, num_blocks=64, recompute_last_block=True, kv_bytes_per_token=1 << 20)
ASK = {"do_remote_decode": True, "do_remote_prefill": False}


async def post(engine: RunningEngine, path: str = "/v1/completions", **body: object) -> tuple[int, dict]:
    async with engine.http.post(engine.url + path, json=body) as response:
        return response.status, await response.json()


async def pair(start: StartEngine, **fields: object) -> tuple[RunningEngine, RunningEngine]:
    return (
        await start(profile=PROFILE, role="prefill", **fields),
        await start(profile=PROFILE, role="decode", **fields),
    )


async def prefill(engine: RunningEngine, prompt: str = PROMPT) -> dict:
    status, answer = await post(engine, prompt=prompt, max_tokens=1, kv_transfer_params=ASK)
    assert status == 200, answer
    return dict(answer["kv_transfer_params"])


async def metric(engine: RunningEngine, name: str) -> float:
    async with engine.http.get(engine.url + "/metrics") as response:
        text = await response.text()
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name))


async def test_the_decode_engine_continues_from_the_prefill_engines_blocks(start_engine: StartEngine) -> None:
    first, second = await pair(start_engine)
    params = await prefill(first)
    assert params["do_remote_prefill"] is True
    assert (params["remote_port"], params["remote_num_tokens"]) == (first.settings.port, 200)
    assert first.server.runtime.model.kv_usage > 0, "the prompt is held"
    status, answer = await post(second, prompt=PROMPT, max_tokens=6, kv_transfer_params=params)
    assert status == 200
    assert answer["usage"]["completion_tokens"] == 6
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 199
    assert "kv_transfer_params" not in answer
    assert first.server.runtime.model.kv_usage == 0, "it is held no more once it was fetched"
    assert await metric(second, "vllm:external_prefix_cache_hits_total") == 199
    assert await metric(second, "vllm:nixl_xfer_time_seconds_count") == 1
    first.server.runtime.model.check()
    second.server.runtime.model.check()


async def test_a_prompt_can_be_fetched_once(start_engine: StartEngine) -> None:
    first, second = await pair(start_engine)
    params = await prefill(first)
    assert (await post(second, prompt=PROMPT, max_tokens=2, kv_transfer_params=params))[0] == 200
    assert (await post(second, prompt=PROMPT, max_tokens=2, kv_transfer_params=params))[0] == 500
    assert await metric(second, "vllm:nixl_num_failed_transfers_total") == 1
    assert (await post(second, prompt=PROMPT, max_tokens=2))[0] == 200, "it can prefill by itself"


async def test_a_request_id_with_special_characters_is_matched(start_engine: StartEngine) -> None:
    first, second = await pair(start_engine)
    body = {"prompt": PROMPT, "max_tokens": 1, "kv_transfer_params": ASK}
    headers = {"x-request-id": "a/b c?d=1&é%2F"}
    async with first.http.post(first.url + "/v1/completions", json=body, headers=headers) as response:
        params = (await response.json())["kv_transfer_params"]
    assert (await post(second, prompt=PROMPT, max_tokens=2, kv_transfer_params=params))[0] == 200


async def test_a_prompt_that_is_not_fetched_expires(start_engine: StartEngine) -> None:
    first, _ = await pair(start_engine, hold_s=0.05)
    await prefill(first)
    await until(lambda: not first.server.runtime.model.kv_usage)
    assert await metric(first, "vllm:nixl_num_kv_expired_reqs_total") == 1


async def test_held_prompts_are_released_before_an_idle_engine_blocks(start_engine: StartEngine) -> None:
    engine = await start_engine(profile=PROFILE, role="prefill")
    async with asyncio.timeout(PATIENCE_S):
        for number in range(8):
            await prefill(engine, f"{number:04}" * 200)
    engine.server.runtime.model.check()
    assert engine.server.runtime.model.cached_blocks <= 64


async def test_roles_reject_the_other_leg(start_engine: StartEngine) -> None:
    first, second = await pair(start_engine)
    params = await prefill(first)
    assert (await post(first, prompt=PROMPT, max_tokens=2, kv_transfer_params=params))[0] == 400
    assert (await post(second, prompt=PROMPT, max_tokens=1, kv_transfer_params=ASK))[0] == 400


@pytest.mark.parametrize(("at", "fault"), [("prefill", "fail"), ("decode", "fail"), ("prefill", "lose")])
async def test_an_injected_fault_is_answered_with_500(start_engine: StartEngine, at: str, fault: str) -> None:
    first, second = await pair(start_engine)
    broken = first if at == "prefill" else second
    assert (await post(broken, "/handoff_fault", fault=fault))[0] == 200
    status, answer = await post(first, prompt=PROMPT, max_tokens=1, kv_transfer_params=ASK)
    if (at, fault) != ("prefill", "fail"):
        params = answer["kv_transfer_params"]
        status, _ = await post(second, prompt=PROMPT, max_tokens=2, kv_transfer_params=params)
    assert status == 500
    assert (await post(broken, prompt=PROMPT, max_tokens=2))[0] == 200, "whole requests are not concerned"
    await post(broken, "/handoff_fault", fault="")
    params = await prefill(first)
    assert (await post(second, prompt=PROMPT, max_tokens=2, kv_transfer_params=params))[0] == 200


async def test_a_hanging_transfer_ends_with_500(start_engine: StartEngine) -> None:
    first, second = await pair(start_engine, fetch_timeout_s=0.1)
    params = await prefill(first)
    await post(first, "/handoff_fault", fault="hang")
    assert (await post(second, prompt=PROMPT, max_tokens=2, kv_transfer_params=params))[0] == 500


@pytest.mark.parametrize(
    "params",
    [
        {"do_remote_prefill": True},
        {"do_remote_prefill": True, "remote_host": "10.1.2.3", "remote_port": 80, "remote_request_id": "x"},
        {"do_remote_prefill": True, "remote_host": "127.0.0.1", "remote_request_id": "x"},
        {"do_remote_prefill": "yes"},
        {"do_remote_prefill": True, "remote_port": 0},
    ],
)
async def test_only_engines_on_the_same_host_are_contacted(engine: RunningEngine, params: dict) -> None:
    assert (await post(engine, prompt=PROMPT, max_tokens=2, kv_transfer_params=params))[0] == 400


async def test_a_client_disconnect_releases_its_prompt(start_engine: StartEngine) -> None:
    first, _ = await pair(start_engine, time_scale=0.5)
    asking = asyncio.create_task(post(first, prompt=PROMPT * 4, max_tokens=1, kv_transfer_params=ASK))
    async with asyncio.timeout(PATIENCE_S):
        while not first.server.runtime.load:
            await asyncio.sleep(0.005)
        asking.cancel()
        while first.server.runtime.load:
            await asyncio.sleep(0.005)
    first.server.runtime.model.check()
    assert first.server.runtime.model.kv_usage == 0
