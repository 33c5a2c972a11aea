from __future__ import annotations

import asyncio
import json

import openai
import pytest

from simulator.engine_models.engine_profile import EngineProfile
from tests.simulator.conftest import RunningEngine, StartEngine


async def _post(engine: RunningEngine, path: str, headers: dict[str, str] | None = None, **body: object) -> dict:
    async with engine.http.post(engine.url + path, json=body, headers=headers) as response:
        return {"status": response.status, **await response.json()}


async def _complete(engine: RunningEngine, prompt: object, **body: object) -> dict:
    return await _post(engine, "/v1/completions", **{"prompt": prompt, "max_tokens": 2, **body})


def _cached(answer: dict) -> int:
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def _client(engine: RunningEngine) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=engine.url + "/v1", api_key="none", max_retries=0)


async def test_the_openai_client_streams_a_chat_with_usage(engine: RunningEngine) -> None:
    async with _client(engine) as client:
        stream = await client.chat.completions.create(
            model="demo",
            messages=[{"role": "user", "content": "hello there"}],
            max_tokens=12,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert len(text) == 12 * 4
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "length"
    assert chunks[-1].usage is not None
    assert (chunks[-1].usage.prompt_tokens, chunks[-1].usage.completion_tokens) == (7, 12)


async def test_streamed_and_whole_responses_have_equal_content(engine: RunningEngine) -> None:
    async with _client(engine) as client:
        stream = await client.completions.create(model="demo", prompt="a prompt", max_tokens=9, stream=True)
        streamed = "".join([chunk.choices[0].text async for chunk in stream])
        whole = await client.completions.create(model="demo", prompt="a prompt", max_tokens=9)
    assert whole.choices[0].text == streamed


async def test_content_parts_form_the_same_prompt_as_a_string(engine: RunningEngine) -> None:
    parts = [{"type": "text", "text": "x" * 300}, {"type": "text", "text": "y" * 300}]
    first = await _post(
        engine, "/v1/chat/completions", messages=[{"role": "user", "content": "x" * 300 + "y" * 300}], max_tokens=1
    )
    second = await _post(engine, "/v1/chat/completions", messages=[{"role": "user", "content": parts}], max_tokens=1)
    assert _cached(first) == 0
    assert _cached(second) == 144
    assert first["choices"][0]["message"] == second["choices"][0]["message"]


@pytest.mark.parametrize("shape", [["{}"], [[1, 2, 3]], [1, 2, 3]])
async def test_a_prompt_can_be_one_text_in_a_list_or_token_ids(engine: RunningEngine, shape: list) -> None:
    answer = await _complete(engine, shape)
    assert answer["status"] == 200
    assert answer["usage"]["prompt_tokens"] == (1 if shape == ["{}"] else 3)


async def test_token_ids_and_their_text_share_the_cache(engine: RunningEngine) -> None:
    await _complete(engine, "abcd" * 40)
    assert _cached(await _complete(engine, [int.from_bytes(b"abcd", "little")] * 40)) == 32


async def test_the_last_block_of_a_completely_cached_prompt_is_recomputed(engine: RunningEngine) -> None:
    prompt = "z" * (4 * 16 * 4)
    assert _cached(await _complete(engine, prompt)) == 0
    assert _cached(await _complete(engine, prompt)) == 3 * 16


async def test_the_request_id_is_part_of_the_response_id(engine: RunningEngine) -> None:
    headers = {"X-Request-Id": 'abc"1'}
    chat = await _post(
        engine, "/v1/chat/completions", headers, messages=[{"role": "user", "content": "x"}], max_tokens=1
    )
    assert chat["id"] == 'chatcmpl-abc"1'
    plain = await _post(engine, "/v1/completions", headers, prompt="x", max_tokens=1)
    assert plain["id"] == 'cmpl-abc"1'


async def test_two_concurrent_requests_with_one_id_do_not_interfere(engine: RunningEngine) -> None:
    headers = {"X-Request-Id": "twin"}
    answers = await asyncio.gather(
        *[_post(engine, "/v1/completions", headers, prompt="x", max_tokens=5) for _ in range(4)]
    )
    assert [answer["status"] for answer in answers] == [200] * 4


async def test_a_cache_salt_separates_caches(engine: RunningEngine) -> None:
    prompt = "s" * 400
    await _complete(engine, prompt, cache_salt="one")
    assert _cached(await _complete(engine, prompt)) == 0
    assert _cached(await _complete(engine, prompt, cache_salt="two")) == 0
    assert _cached(await _complete(engine, prompt, cache_salt="one")) == 96


async def test_a_chat_without_a_limit_ends_with_finish_reason_stop(engine: RunningEngine) -> None:
    answer = await _post(engine, "/v1/chat/completions", messages=[{"role": "user", "content": "x"}])
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] >= 8


async def test_max_completion_tokens_is_read_as_max_tokens(engine: RunningEngine) -> None:
    messages = [{"role": "user", "content": "x"}]
    answer = await _post(engine, "/v1/chat/completions", messages=messages, max_completion_tokens=3, ignore_eos=True)
    assert answer["usage"]["completion_tokens"] == 3


async def test_an_unknown_model_is_404(engine: RunningEngine) -> None:
    answer = await _complete(engine, "x", model="other")
    assert (answer["status"], answer["error"]["type"]) == (404, "NotFoundError")


async def test_a_prompt_over_the_limit_is_400_and_names_the_limit(start_engine: StartEngine) -> None:
    engine = await start_engine(max_model_len=100)
    assert (await _complete(engine, "x" * 392, max_tokens=2))["status"] == 200
    answer = await _complete(engine, "x" * 396, max_tokens=2)
    assert (answer["status"], answer["error"]["type"], answer["error"]["param"]) == (
        400,
        "BadRequestError",
        "input_tokens",
    )
    assert "100 tokens" in answer["error"]["message"]


async def test_above_the_admission_limit_new_requests_get_503_even_for_streams(start_engine: StartEngine) -> None:
    engine = await start_engine(max_queued=2, time_scale=1.0)
    body = {"prompt": "x" * 40_000, "max_tokens": 1}
    first = [asyncio.create_task(_post(engine, "/v1/completions", **body)) for _ in range(2)]
    while engine.server.runtime.load < 2:
        await asyncio.sleep(0.01)
    rejected = await _complete(engine, "x", stream=True)
    assert (rejected["status"], rejected["error"]["type"]) == (503, "ServiceUnavailableError")
    assert [answer["status"] for answer in await asyncio.gather(*first)] == [200, 200]
    async with engine.http.get(engine.url + "/metrics") as response:
        assert 'vllm:admission_rejections_total{engine="0",model_name="demo",reason="queued_reqs"} 1.0' in (
            await response.text()
        )


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_disconnect_frees_its_slot(start_engine: StartEngine, stream: bool) -> None:
    engine = await start_engine(time_scale=1.0, profile=EngineProfile(recompute_last_block=True))
    body = {"prompt": "x" * 4000, "max_tokens": 5000, "stream": stream}
    asked = asyncio.create_task(engine.http.post(engine.url + "/v1/completions", json=body))
    model = engine.server.runtime.model
    while not model.running:
        await asyncio.sleep(0.01)
    if stream:
        response = await asked
        await response.content.readany()
        response.close()
    else:
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
    async with asyncio.timeout(2):
        while engine.server.runtime.load:
            await asyncio.sleep(0.01)
    assert (model.running, model.kv_usage) == (0, 0.0)
    model.check()


async def test_a_waiting_request_whose_client_disconnects_never_starts(start_engine: StartEngine) -> None:
    engine = await start_engine(time_scale=1.0)
    blocker = asyncio.create_task(_complete(engine, "a" * 60_000, max_tokens=1))
    while engine.server.runtime.load < 1:
        await asyncio.sleep(0.01)
    waiting = asyncio.create_task(_complete(engine, "b" * 60_000, max_tokens=1))
    while engine.server.runtime.load < 2:
        await asyncio.sleep(0.01)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert (await blocker)["status"] == 200
    assert engine.server.runtime.model.cached_blocks == 60_000 // 4 // 512


async def test_priority_lets_a_later_request_go_first(start_engine: StartEngine) -> None:
    engine = await start_engine(time_scale=2.0)
    done: list[str] = []

    async def ask(name: str, priority: int) -> None:
        await _complete(engine, name * 20_000, max_tokens=1, priority=priority)
        done.append(name)

    tasks = []
    for expected, (name, priority) in enumerate([("a", 0), ("b", 0), ("c", -5)], start=1):
        tasks.append(asyncio.create_task(ask(name, priority)))
        while engine.server.runtime.load < expected:
            await asyncio.sleep(0.002)
    await asyncio.gather(*tasks)
    assert done == ["a", "c", "b"]


async def test_stream_interval_sends_several_tokens_per_chunk_and_loses_none(start_engine: StartEngine) -> None:
    engine = await start_engine(stream_interval=8)
    body = {"prompt": "x", "max_tokens": 20, "stream": True}
    async with engine.http.post(engine.url + "/v1/completions", json=body) as response:
        lines = [line[6:] for line in (await response.text()).split("\n") if line.startswith("data: {")]
    texts = [json.loads(line)["choices"][0]["text"] for line in lines]
    assert sum(len(text) for text in texts) == 80
    assert len(texts) <= 4, "1 + 8 + 8 + 3 tokens, or fewer chunks where the reader is late"


async def test_a_stopping_engine_ends_streams_and_rejects_new_work(start_engine: StartEngine) -> None:
    engine = await start_engine(time_scale=1.0)
    body = {"prompt": "x", "max_tokens": 5000, "stream": True}
    async with engine.http.post(engine.url + "/v1/completions", json=body) as response:
        await response.content.readany()
        engine.server.runtime.close()
        rest = await asyncio.gather(response.read(), return_exceptions=True)
    assert not (isinstance(rest[0], bytes) and rest[0].rstrip().endswith(b"[DONE]"))
    assert (await _complete(engine, "x"))["status"] == 503
    async with engine.http.get(engine.url + "/health") as health:
        assert health.status == 503
