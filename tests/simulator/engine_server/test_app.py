from __future__ import annotations

import asyncio
import io

import pytest

from bench.live.loopback_ports import free_port
from gateway.pools.engines.engine_metrics import parse_engine_metrics
from simulator.engine_server.settings import MAX_BODY_BYTES
from tests.simulator.conftest import RunningEngine, StartEngine


async def _json(engine: RunningEngine, method: str, path: str, **more: object) -> tuple[int, dict]:
    async with engine.http.request(method, engine.url + path, **more) as response:
        return response.status, await response.json()


async def test_the_engine_reports_its_model_and_maximum_length(engine: RunningEngine) -> None:
    status, body = await _json(engine, "GET", "/v1/models")
    assert status == 200
    assert body["data"][0]["id"] == "demo"
    assert body["data"][0]["max_model_len"] == engine.settings.max_model_len


async def test_the_engine_serves_under_each_of_its_names(start_engine: StartEngine) -> None:
    engine = await start_engine(aliases=("short",))
    _, body = await _json(engine, "GET", "/v1/models")
    assert [(card["id"], card["root"]) for card in body["data"]] == [("demo", "demo"), ("short", "demo")]
    asked = {"model": "short", "prompt": "x", "max_tokens": 1}
    assert (await _json(engine, "POST", "/v1/completions", json=asked))[0] == 200


async def test_adapters_are_listed_as_in_vllm_and_served_under_their_names(start_engine: StartEngine) -> None:
    engine = await start_engine(lora=("sql",))
    _, body = await _json(engine, "GET", "/v1/models")
    base, adapter = body["data"]
    assert (adapter["id"], adapter["parent"], adapter["root"]) == ("sql", base["id"], "/adapters/sql")
    asked = {"model": "sql", "prompt": "x", "max_tokens": 1}
    status, answer = await _json(engine, "POST", "/v1/completions", json=asked)
    assert (status, answer["model"]) == (200, "sql")
    assert (await _json(engine, "POST", "/v1/completions", json={**asked, "model": "law"}))[0] == 404


async def test_adapters_of_running_requests_are_reported_and_unused_ones_reloaded(
    start_engine: StartEngine,
) -> None:
    engine = await start_engine(lora=("sql", "law"), max_loras=1, lora_load_s=2.0)
    runtime = engine.server.runtime
    setups = []
    for name in ("sql", "sql", "law", "sql"):
        asked = {"model": name, "prompt": "x", "max_tokens": 40, "stream": True}
        async with engine.http.post(engine.url + "/v1/completions", json=asked) as answer:
            assert answer.status == 200
            setups += [item.sequence.setup_s for item in runtime._live.values()]
            async with engine.http.get(engine.url + "/metrics") as response:
                metrics = parse_engine_metrics(await response.read())
            assert (metrics.adapters, metrics.max_adapters) == ((name,), 1)
            await answer.read()
    assert setups == [2.0, 0.0, 2.0, 2.0]
    async with engine.http.get(engine.url + "/metrics") as response:
        assert parse_engine_metrics(await response.read()).adapters == ()


async def test_an_api_key_protects_only_v1(start_engine: StartEngine) -> None:
    engine = await start_engine(api_key="secret")
    assert (await _json(engine, "GET", "/v1/models"))[0] == 401
    bearer = {"Authorization": "Bearer secret"}
    assert (await _json(engine, "GET", "/v1/models", headers=bearer))[0] == 200
    assert (await _json(engine, "GET", "/load"))[0] == 200


async def test_health_is_empty_and_200(engine: RunningEngine) -> None:
    async with engine.http.get(engine.url + "/health") as response:
        assert (response.status, await response.read()) == (200, b"")


async def test_version_and_event_sources_are_reported(start_engine: StartEngine) -> None:
    events, replay = free_port(), free_port()
    engine = await start_engine(kv_events_port=events, kv_replay_port=replay)
    assert (await _json(engine, "GET", "/version"))[1]["version"].startswith("0.32.0")
    status, sources = await _json(engine, "GET", "/kv_event_sources")
    assert status == 200
    assert sources == {
        "0": {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": f"tcp://127.0.0.1:{events}",
            "replay_endpoint": f"tcp://127.0.0.1:{replay}",
            "buffer_steps": 1000,
            "topic": f"kv@127.0.0.1:{engine.settings.port}@demo",
        }
    }


async def test_an_engine_without_events_has_no_sources(engine: RunningEngine) -> None:
    assert await _json(engine, "GET", "/kv_event_sources") == (200, {})


async def test_tokenize_counts_a_prompt_and_a_conversation(engine: RunningEngine) -> None:
    _, prompt = await _json(engine, "POST", "/tokenize", json={"prompt": "abcdefgh"})
    assert prompt["count"] == 2
    assert prompt["tokens"][0] == int.from_bytes(b"abcd", "little")
    messages = [{"role": "user", "content": "abcd"}]
    _, chat = await _json(engine, "POST", "/tokenize", json={"messages": messages})
    assert chat["count"] == 5
    assert chat["tokens"][2] == prompt["tokens"][0]


async def test_load_counts_running_and_waiting_requests(start_engine: StartEngine) -> None:
    engine = await start_engine(time_scale=1.0)
    body = {"prompt": "x" * 40_000, "max_tokens": 1}
    asked = [asyncio.create_task(engine.http.post(engine.url + "/v1/completions", json=body)) for _ in range(3)]
    while engine.server.runtime.load < 3:
        await asyncio.sleep(0.01)
    assert await _json(engine, "GET", "/load") == (200, {"server_load": 3})
    for response in await asyncio.gather(*asked):
        assert response.status == 200
    assert await _json(engine, "GET", "/load") == (200, {"server_load": 0})


async def test_metrics_carry_vllms_names_and_labels(engine: RunningEngine) -> None:
    for _ in range(2):
        await _json(engine, "POST", "/v1/completions", json={"prompt": "x" * 400, "max_tokens": 3})
    async with engine.http.get(engine.url + "/metrics") as response:
        text = await response.text()
    labels = '{engine="0",model_name="demo"}'
    for line in (
        f"vllm:prompt_tokens_total{labels} 200.0",
        f"vllm:prefix_cache_queries_total{labels} 200.0",
        f"vllm:prefix_cache_hits_total{labels} 96.0",
        f"vllm:generation_tokens_total{labels} 6.0",
        f"vllm:num_requests_running{labels} 0.0",
        f"vllm:num_requests_waiting{labels} 0.0",
        f"vllm:kv_cache_usage_perc{labels} 0.0",
        'vllm:request_success_total{engine="0",finished_reason="length",model_name="demo"} 2.0',
        f"vllm:time_to_first_token_seconds_count{labels} 2.0",
        f"vllm:inter_token_latency_seconds_count{labels} 4.0",
    ):
        assert line in text
    assert 'block_size="16"' in text
    assert "process_start_time_seconds" in text


async def test_the_cache_can_be_reset(engine: RunningEngine) -> None:
    ask = {"prompt": "y" * 400, "max_tokens": 1}
    await _json(engine, "POST", "/v1/completions", json=ask)
    assert await _json(engine, "POST", "/reset_prefix_cache") == (200, {"success": True})
    _, again = await _json(engine, "POST", "/v1/completions", json=ask)
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


_GARBAGE = [
    b"",
    b"not json",
    b"[" * 5000,
    b'{"prompt":' * 5000,
    b'{"prompt":"\\ud800"}',
    b'{"prompt":"a\\udc00b"}',
    b'{"prompt":"\xff\xfe"}',
    b"[]",
    b"null",
    b"{}",
    b'{"prompt":{}}',
    b'{"prompt":[1,"a"]}',
    b'{"prompt":["a","b"]}',
    b'{"prompt":[-1]}',
    b'{"prompt":[4294967296]}',
    b'{"prompt":[99999999999999999999999]}',
    b'{"prompt":[true]}',
    b'{"prompt":[[[1]]]}',
    b'{"prompt":[]}',
    b'{"prompt":""}',
    b'{"prompt":"x","max_tokens":0}',
    b'{"prompt":"x","max_tokens":1e99}',
    b'{"prompt":"x","max_tokens":99999999999999999999}',
    b'{"prompt":"x","n":2}',
    b'{"prompt":"x","cache_salt":""}',
    b'{"prompt":"x","stream_options":[]}',
    b'{"messages":[]}',
    b'{"messages":[{"role":"wizard","content":"x"}]}',
    b'{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}',
    b'{"messages":[{"role":"user","content":7}]}',
]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/tokenize"])
async def test_malformed_bodies_get_an_explained_4xx_and_leave_no_state_behind(
    engine: RunningEngine, path: str
) -> None:
    for data in _GARBAGE:
        if path == "/tokenize" and (b'"prompt":"x"' in data or b'"prompt":""' in data):
            continue
        status, body = await _json(engine, "POST", path, data=data)
        assert 400 <= status < 500, data[:60]
        assert body["error"]["message"], data[:60]
        assert body["error"]["code"] == status
    assert engine.server.runtime.load == 0


async def test_a_body_over_the_limit_is_413(engine: RunningEngine) -> None:
    status, body = await _json(engine, "POST", "/v1/completions", data=io.BytesIO(b"x" * (MAX_BODY_BYTES + 1)))
    assert status == 413
    assert "shorter" in body["error"]["message"]


async def test_an_unknown_path_is_404_and_a_wrong_method_405(engine: RunningEngine) -> None:
    assert (await _json(engine, "GET", "/v2/models"))[0] == 404
    status, body = await _json(engine, "GET", "/v1/completions")
    assert (status, body["error"]["type"]) == (405, "MethodNotAllowedError")
