"""The OpenAI-compatible proxy forwards bytes at once, switches engines in time, and leaves no state behind."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest

from gateway.access.isolation_domains import SALTS, cache_salt
from routing.policy.policy_document import RoutingPolicy, Stage
from tests.gateway.raw_http import RawConnection, post
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import BODY, CHAT, KEY, KEYRING, MODEL, OTHER_KEY, STREAM, ServedGateway, served
from tests.patience import PATIENCE_S

ROUND_ROBIN = RoutingPolicy(placement=Stage(name="round_robin"), order=Stage(name="fifo"))


async def test_the_openai_client_streams_through_the_proxy(gateway: ServedGateway, engine: ScriptedEngine) -> None:
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=KEY) as client:
        stream = await client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "hi"}], stream=True, max_tokens=5
        )
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    assert text == "Hello"
    assert engine.bodies[0]["max_tokens"] == 5
    assert gateway.is_idle()


async def test_a_whole_response_is_forwarded_as_the_engine_wrote_it(
    gateway: ServedGateway, engine: ScriptedEngine
) -> None:
    status, answer, headers = await gateway.post(CHAT, BODY)
    assert status == 200
    assert answer["choices"][0]["message"]["content"] == "Hello"
    assert answer["usage"]["prompt_tokens_details"] == {"cached_tokens": 64}
    _, explained = await gateway.get(f"/api/v1/explain/{headers['x-headway-decision']}")
    assert explained["outcome"]["state"] == "completed"
    assert explained["outcome"]["cached_tokens"] == 64
    assert explained["key_source"] == "tokenized"
    assert engine.headers[0]["x-request-id"] == headers["x-headway-decision"]
    assert gateway.is_idle()


async def test_text_completions_pass_too(gateway: ServedGateway) -> None:
    for prompt in ("abc", [1, 2, 3], ["abc", "def"]):
        status, _, _ = await gateway.post("/v1/completions", {"model": MODEL, "prompt": prompt})
        assert status == 200


async def test_chunks_arrive_one_by_one(gateway: ServedGateway, engine: ScriptedEngine) -> None:
    engine.chunks = ["a", "b", "c", "d"]
    engine.pause_s = 0.05
    chunks, headers = await gateway.stream()
    assert len(chunks) >= 4
    assert "".join(json.loads(c[6:])["choices"][0]["delta"]["content"] for c in chunks[:4]) == "abcd"
    assert len(headers["x-headway-decision"]) == 36
    assert headers["content-type"].startswith("text/event-stream")


async def test_usage_requested_by_the_gateway_is_read_and_stripped(
    gateway: ServedGateway, engine: ScriptedEngine
) -> None:
    chunks, headers = await gateway.stream()
    assert engine.bodies[0]["stream_options"] == {"include_usage": True}
    assert b"usage" not in b"".join(chunks)
    assert b"".join(chunks).endswith(b"data: [DONE]\n\n")
    _, explained = await gateway.get(f"/api/v1/explain/{headers['x-headway-decision']}")
    assert explained["outcome"]["cached_tokens"] == 64
    assert explained["outcome"]["first_token_after_s"] > 0
    text = await gateway.metrics()
    assert 'headway_cached_tokens_total{model_name="tiny",pool="pool"} 64.0' in text
    assert 'headway_ttft_seconds_count{model_name="tiny",pool="pool"} 1.0' in text


LOOSE: dict[str, Any] = {"stream": 1, "max_tokens": "16", "n": 1.0, "stream_options": {"include_usage": "yes"}}
STRICT: dict[str, Any] = {"stream": True, "max_tokens": 16, "n": 1, "stream_options": {"include_usage": True}}


@pytest.mark.parametrize("fields", [LOOSE, STRICT])
async def test_lenient_json_is_normalized_and_counts_like_strict_json(
    gateway: ServedGateway, engine: ScriptedEngine, fields: dict[str, Any]
) -> None:
    chunks, headers = await gateway.stream({**BODY, **fields})
    expected = {**BODY, **STRICT, "stream_options": fields["stream_options"]}
    assert repr(engine.bodies[0]) == repr(expected)
    assert b'"cached_tokens": 64' in b"".join(chunks)
    record = gateway.app.recent.get(headers["x-headway-decision"])
    assert (record.output_tokens, record.cached_tokens) == (2, 64)
    assert 'headway_cached_tokens_total{model_name="tiny",pool="pool"} 64.0' in await gateway.metrics()


async def test_usage_requested_by_the_client_is_kept(gateway: ServedGateway, engine: ScriptedEngine) -> None:
    body = {**STREAM, "stream_options": {"include_usage": True, "other": 1}}
    chunks, _ = await gateway.stream(body)
    assert engine.bodies[0] == body
    assert b'"cached_tokens": 64' in b"".join(chunks)


async def test_a_prompt_of_several_megabytes_passes(engine: ScriptedEngine, tmp_path: Path) -> None:
    body = {"model": MODEL, "prompt": list(range(100_000, 500_000))}
    async with served([engine.url], tmp_path, max_prompt_tokens=1_000_000) as gateway:
        status, _, _ = await gateway.post("/v1/completions", json.dumps(body).encode())
    assert status == 200
    assert len(engine.raw_bodies[0]) > 3_000_000


async def test_fields_that_we_set_never_come_from_the_client(gateway: ServedGateway, engine: ScriptedEngine) -> None:
    body = {**BODY, "cache_salt": "guess", "kv_transfer_params": {"remote_host": "evil"}, "data_parallel_rank": 3}
    headers = {
        "x-data-parallel-rank": "1",
        "cookie": "a=b",
        "x-forwarded-for": "1.2.3.4",
        "traceparent": "00-abc-def-01",
        "x-request-id": "mine",
    }
    _, _, answered = await gateway.post(CHAT, body, headers=headers)
    assert engine.bodies == [{**BODY, "cache_salt": cache_salt(KEYRING.used.derive(SALTS), "tenant-a", "guess")}]
    sent = engine.headers[0]
    assert not {"authorization", "cookie", "x-data-parallel-rank", "x-forwarded-for"} & set(sent)
    assert sent["traceparent"] == "00-abc-def-01"
    assert sent["x-request-id"] == answered["x-headway-decision"] != "mine"
    assert answered["x-request-id"] == "mine"


async def test_an_isolating_pool_salts_each_tenant_in_the_engine(engine: ScriptedEngine, tmp_path: Path) -> None:
    async with served([engine.url], tmp_path, isolated=True) as gateway:
        await gateway.post(CHAT, {**BODY, "cache_salt": "guess"})
        await gateway.post(CHAT, BODY, key=OTHER_KEY)
    assert [body["cache_salt"] for body in engine.bodies] == [
        cache_salt(KEYRING.used.derive(SALTS), "tenant-a", "guess"),
        cache_salt(KEYRING.used.derive(SALTS), "tenant-b"),
    ]


async def test_models_of_all_pools_are_listed(gateway: ServedGateway) -> None:
    status, listing = await gateway.get("/v1/models")
    assert (status, [card["id"] for card in listing["data"]]) == (200, [MODEL])
    assert (await gateway.get(f"/v1/models/{MODEL}"))[1]["id"] == MODEL
    assert (await gateway.get("/v1/models/other"))[0] == 404
    assert (await gateway.get("/v1/models", key=None))[0] == 401


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({**BODY, "model": "other"}, 404, "model_not_found"),
        ({"messages": BODY["messages"]}, 400, "bad_field"),
        ({"model": MODEL}, 400, "bad_field"),
        ({**BODY, "max_tokens": "many"}, 400, "bad_field"),
        ({**BODY, "priority": 2**40}, 400, "bad_field"),
        ({"model": MODEL, "messages": [{"role": "user", "content": "x" * 500}]}, 400, "context_length_exceeded"),
        (b"[" * 5000, 400, "too_deep"),
        (b'{"model": "tiny", "messages": [{"content": "\\udfff"}]}', 400, "lone_surrogate"),
        (b"\x00", 400, "not_json"),
    ],
)
async def test_invalid_requests_never_reach_an_engine(
    engine: ScriptedEngine, tmp_path: Path, body: Any, status: int, code: str
) -> None:
    async with served([engine.url], tmp_path, max_prompt_tokens=400) as gateway:
        got, answer, _ = await gateway.post(CHAT, body)
        assert (got, answer["error"]["code"]) == (status, code)
        assert f'headway_rejected_input_total{{cause="{code}"}} 1.0' in await gateway.metrics()
        assert gateway.is_idle()
    assert engine.bodies == []


async def test_the_prompt_limit_does_not_apply_to_the_sum_of_a_list(engine: ScriptedEngine, tmp_path: Path) -> None:
    body = {"model": MODEL, "prompt": ["x" * 300, "y" * 300]}
    async with served([engine.url], tmp_path, max_prompt_tokens=400) as gateway:
        assert (await gateway.post("/v1/completions", body))[0] == 200
        status, answer, _ = await gateway.post("/v1/completions", {**body, "prompt": ["x" * 500, "y"]})
        assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")


@pytest.mark.parametrize("header", ["0", "abc", "1.5", "99999999"])
async def test_an_invalid_slo_header_is_rejected(gateway: ServedGateway, header: str) -> None:
    status, answer, _ = await gateway.post(CHAT, BODY, headers={"x-llm-d-slo-ttft-ms": header})
    assert (status, answer["error"]["code"]) == (400, "bad_header")


async def test_a_prompt_without_a_tokenizer_is_served_with_an_estimate(
    gateway: ServedGateway, engine: ScriptedEngine
) -> None:
    engine.tokenizer_status = 404
    _, _, headers = await gateway.post(CHAT, BODY)
    _, explained = await gateway.get(f"/api/v1/explain/{headers['x-headway-decision']}")
    assert explained["key_source"] == "none"
    assert explained["decision"]["prompt_tokens"] > 0


async def test_an_engines_rejection_is_relayed_to_the_client(gateway: ServedGateway, engine: ScriptedEngine) -> None:
    engine.status = 422
    engine.error_headers = {"retry-after": "7", "x-internal": "secret", "set-cookie": "a=b"}
    status, answer, headers = await gateway.post(CHAT, BODY)
    assert (status, answer["error"]["message"]) == (422, "engine says no")
    assert headers["retry-after"] == "7"
    assert "x-internal" not in headers
    assert "set-cookie" not in headers
    assert len(engine.bodies) == 1
    assert gateway.pool.engines["engine-0"].breaker.accepts
    assert 'outcome="client_error"' in await gateway.metrics()
    assert gateway.is_idle()


@pytest.mark.parametrize("body", [BODY, STREAM])
async def test_a_client_disconnect_cancels_its_request_at_the_engine(
    gateway: ServedGateway, engine: ScriptedEngine, body: dict[str, Any]
) -> None:
    engine.chunks = ["a"] * 100
    engine.pause_s = 0.3
    connection = await RawConnection.open(gateway.url)
    await connection.send(post(CHAT, json.dumps(body).encode(), f"Authorization: Bearer {KEY}"))
    async with asyncio.timeout(PATIENCE_S):
        await engine.received.wait()
        await asyncio.sleep(0.05)
        assert not gateway.is_idle()
        await connection.close()
        await engine.disconnected.wait()
    assert gateway.is_idle()
    assert 'headway_requests_total{outcome="cancelled",pool="pool"} 1.0' in await gateway.metrics()


async def test_a_client_that_disconnects_while_queued_gives_up_its_slot(tmp_path: Path) -> None:
    policy = RoutingPolicy(prefill_window_tokens=1, lookahead_s=0.0)
    async with ScriptedEngine() as engine, served([engine.url], tmp_path, policy=policy) as gateway:
        engine.stall = True
        first = asyncio.create_task(gateway.post(CHAT, STREAM))
        await engine.received.wait()
        connection = await RawConnection.open(gateway.url)
        await connection.send(post(CHAT, json.dumps(BODY).encode(), f"Authorization: Bearer {KEY}"))
        await asyncio.sleep(0.1)
        assert len(gateway.pool.router.waiting) == 1
        await connection.close()
        await asyncio.sleep(0.1)
        assert len(gateway.pool.router.waiting) == 0
        first.cancel()
        await asyncio.wait([first])
    assert len(engine.bodies) == 1


async def test_a_whole_response_releases_the_prefill_before_it_is_complete(
    gateway: ServedGateway, engine: ScriptedEngine
) -> None:
    engine.pause_s = 0.5
    call = asyncio.create_task(gateway.post(CHAT, BODY))
    await engine.received.wait()
    await asyncio.sleep(0.25)
    (reservation,) = gateway.pool.router.reservations
    assert reservation.phase == "decoding"
    assert (await call)[0] == 200


async def test_a_hundred_concurrent_streams_leave_no_state_behind(tmp_path: Path) -> None:
    async with (
        ScriptedEngine() as one,
        ScriptedEngine() as two,
        served([one.url, two.url], tmp_path) as gateway,
    ):
        results = await asyncio.gather(*(gateway.stream() for _ in range(100)))
        assert all(b"".join(chunks).endswith(b"[DONE]\n\n") for chunks, _ in results)
        assert len({headers["x-headway-decision"] for _, headers in results}) == 100
        assert one.tokenize_calls + two.tokenize_calls == 1
        assert gateway.is_idle()


async def test_the_proxy_requires_a_key(gateway: ServedGateway) -> None:
    status, answer, headers = await gateway.post(CHAT, BODY, key="hw_wrong")
    assert (status, answer["error"]["type"]) == (401, "authentication_error")
    assert headers["www-authenticate"] == "Bearer"


async def test_only_post_requests_complete(gateway: ServedGateway) -> None:
    async with gateway.client.get(gateway.url + CHAT, headers={"authorization": f"Bearer {KEY}"}) as response:
        assert response.status == 405
    with pytest.raises(aiohttp.ClientError):
        async with gateway.client.get("http://127.0.0.1:9/"):
            pass


async def test_a_prompt_with_nul_passes_and_a_name_with_nul_does_not(
    gateway: ServedGateway, engine: ScriptedEngine
) -> None:
    prompt = {"model": MODEL, "messages": [{"role": "user", "content": "a\0b"}]}
    assert (await gateway.post(CHAT, prompt))[0] == 200
    assert (await gateway.post("/api/v1/route", {**prompt, "wait": False}))[0] == 200
    for way in (CHAT, "/api/v1/route"):
        for name in ("model", "session_id"):
            status, answer, _ = await gateway.post(way, {**prompt, name: "a\0b"})
            assert (status, answer["error"]["code"], answer["error"]["param"]) == (400, "nul_character", name)
