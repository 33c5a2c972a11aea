"""Every endpoint of the table: the body sent to the engine, the parsed response, and the error format."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.access.isolation_domains import SALTS, cache_salt
from gateway.requests.formats.endpoints import ENDPOINTS
from routing.policy.policy_document import RoutingPolicy, Stage
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import KEY, KEYRING, MODEL, OTHER_KEY, ServedGateway, served
from tests.patience import until

ROUND_ROBIN = RoutingPolicy(placement=Stage(name="round_robin"), order=Stage(name="fifo"))
CHAT = [{"role": "user", "content": "x" * 40}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": CHAT},
    "/v1/completions": {"prompt": "x" * 40},
    "/v1/responses": {"input": "x" * 40, "instructions": "Be brief."},
    "/v1/messages": {"messages": CHAT, "max_tokens": 5},
    "/v1/embeddings": {"input": ["x" * 40, "y"]},
    "/rerank": {"query": "x", "documents": ["y", "z"]},
    "/v1/rerank": {"query": "x", "documents": ["y", "z"]},
    "/v2/rerank": {"query": "x", "documents": ["y", "z"]},
    "/pooling": {"input": ["x", "yy"]},
    "/classify": {"input": [1, 2, 3]},
    "/score": {"text_1": "x", "text_2": ["y", "z"]},
    "/v1/score": {"queries": ["x", "y"], "documents": ["y", "z"]},
    "/tokenize": {"prompt": "x"},
    "/detokenize": {"tokens": [1, 2]},
    "/v1/messages/count_tokens": {"messages": CHAT},
}
ROUTED = [item.path for item in ENDPOINTS if item.routed and not item.is_form]
UNPLACED = [item.path for item in ENDPOINTS if not item.routed]
MESSAGES_USAGE = {"input_tokens": 36, "cache_read_input_tokens": 64, "output_tokens": 7}
RESPONSES_USAGE = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 64, "cached_tokens_per_turn": [64]},
    "output_tokens": 7,
}


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


STREAMS = {
    "/v1/responses": [
        event("response.created", response={"id": "r", "usage": None}),
        event("response.in_progress", response={"id": "r", "usage": None}),
        event("response.output_text.delta", delta="Hel"),
        event("response.output_text.delta", delta="lo"),
        event("response.completed", response={"id": "r", "usage": RESPONSES_USAGE}),
    ],
    "/v1/messages": [
        event("message_start", message={"id": "m", "usage": {"input_tokens": 100, "output_tokens": 0}}),
        event("ping"),
        event("content_block_delta", delta={"type": "text_delta", "text": "Hel"}),
        event("content_block_delta", delta={"type": "text_delta", "text": "lo"}),
        event("message_delta", delta={"stop_reason": "end_turn"}, usage=MESSAGES_USAGE),
        event("message_stop"),
    ],
}
WHOLE = {"/v1/responses": {"usage": RESPONSES_USAGE}, "/v1/messages": {"usage": MESSAGES_USAGE}}


def scripted(engine: ScriptedEngine) -> ScriptedEngine:
    engine.scripts = dict.fromkeys(BODIES, b'{"ok": true, "usage": {"prompt_tokens": 9, "total_tokens": 9}}')
    return engine


@pytest.fixture
async def engine() -> AsyncIterator[ScriptedEngine]:
    async with ScriptedEngine() as engine:
        yield scripted(engine)


async def stream(gateway: ServedGateway, path: str, key: str = KEY) -> tuple[bytes, str]:
    """Return a streamed response and the id of its decision."""
    body = {"model": MODEL, "stream": True, **BODIES[path]}
    async with gateway.client.post(
        gateway.url + path, json=body, headers={"authorization": f"Bearer {key}"}
    ) as response:
        assert response.status == 200, await response.read()
        return await response.read(), response.headers["x-headway-decision"]


async def explained(gateway: ServedGateway, decision_id: str) -> Any:
    return (await gateway.get(f"/api/v1/explain/{decision_id}"))[1]


def test_every_endpoint_is_covered_here() -> None:
    assert set(BODIES) == {item.path for item in ENDPOINTS if not item.is_form}


@pytest.mark.parametrize("path", [path for path in BODIES if path != "/tokenize"])
async def test_unknown_fields_are_forwarded_byte_for_byte(
    gateway: ServedGateway, engine: ScriptedEngine, path: str
) -> None:
    known = json.dumps({"model": MODEL, **BODIES[path]})[1:]
    raw = ('{ "of_tomorrow" : {"a":[1.50, "\\u00e9"]}, ' + known).encode()
    status, _, headers = await gateway.post(path, raw)
    assert (status, engine.raw_bodies) == (200, [raw])
    assert ("x-headway-decision" in headers) == (path in ROUTED)
    assert f'headway_proxied_requests_total{{path="{path}",pool="pool"}} 1.0' in await gateway.metrics()
    assert gateway.is_idle()


@pytest.mark.parametrize("path", ROUTED)
async def test_a_callers_salt_is_scoped_to_its_tenant_and_not_forwarded(
    gateway: ServedGateway, engine: ScriptedEngine, path: str
) -> None:
    body = {"model": MODEL, **BODIES[path], "cache_salt": "guess"}
    status, _, headers = await gateway.post(path, body)
    assert status == 200
    assert engine.bodies[0]["cache_salt"] == cache_salt(KEYRING.used.derive(SALTS), "tenant-a", "guess")
    assert gateway.app.recent.get(headers["x-headway-decision"]).salted


@pytest.mark.parametrize("path", UNPLACED)
async def test_requests_without_token_work_are_forwarded_without_salt_and_reservation(
    gateway: ServedGateway, path: str
) -> None:
    assert (await gateway.post(path, {"model": MODEL, **BODIES[path], "cache_salt": "guess"}))[0] == 200
    assert len(gateway.app.recent) == 0


@pytest.mark.parametrize("path", UNPLACED)
async def test_another_engine_replaces_a_dead_one(tmp_path: Path, path: str) -> None:
    async with ScriptedEngine() as gone, ScriptedEngine() as engine:
        scripted(engine)
        async with served([gone.url, engine.url], tmp_path) as gateway:
            await gone.stop()
            for _ in range(3):
                assert (await gateway.post(path, {"model": MODEL, **BODIES[path]}))[0] == 200
            await engine.stop()
            status, answer, headers = await gateway.post(path, {"model": MODEL, **BODIES[path]})
            assert (status, headers["retry-after"]) == (503, "1")
            assert answer["error"]["code"] in {"engine_unreachable", "no_engine"}


async def test_an_engine_error_for_a_request_to_any_engine_is_relayed(
    gateway: ServedGateway, engine: ScriptedEngine
) -> None:
    engine.scripts = {}
    status, answer, _ = await gateway.post("/detokenize", {"model": MODEL, **BODIES["/detokenize"]})
    assert (status, answer["error"]["message"]) == (404, "engine says no")


@pytest.mark.parametrize("path", STREAMS)
async def test_a_stream_passes_unchanged_and_its_usage_is_read(
    gateway: ServedGateway, engine: ScriptedEngine, path: str
) -> None:
    engine.scripts[path] = STREAMS[path]
    answer, decision_id = await stream(gateway, path)
    assert answer == b"".join(STREAMS[path])
    assert engine.bodies == [{"model": MODEL, "stream": True, **BODIES[path]}]
    outcome = (await explained(gateway, decision_id))["outcome"]
    assert (outcome["state"], outcome["cached_tokens"], outcome["output_tokens"]) == ("completed", 64, 7)
    assert gateway.app.recent.get(decision_id).engine_prompt_tokens == 100


@pytest.mark.parametrize("path", STREAMS)
async def test_the_usage_of_a_whole_response_is_read(gateway: ServedGateway, engine: ScriptedEngine, path: str) -> None:
    engine.scripts[path] = json.dumps(WHOLE[path]).encode()
    _, answer, headers = await gateway.post(path, {"model": MODEL, **BODIES[path]})
    assert answer == WHOLE[path]
    record = gateway.app.recent.get(headers["x-headway-decision"])
    assert (record.cached_tokens, record.output_tokens, record.engine_prompt_tokens) == (64, 7, 100)


@pytest.mark.parametrize("path", STREAMS)
async def test_events_before_generation_are_not_a_first_token(
    gateway: ServedGateway, engine: ScriptedEngine, path: str
) -> None:
    engine.scripts[path] = STREAMS[path]
    engine.goes_on.clear()
    asking = asyncio.create_task(stream(gateway, path))
    await until(lambda: len(gateway.app.recent) == 1 and engine.received.is_set())
    for _ in range(20):
        await asyncio.sleep(0.005)
    record = next(iter(gateway.app.recent._records.values()))
    assert record.first_token_s is None
    engine.goes_on.set()
    await asking
    assert record.first_token_s is not None


@pytest.mark.parametrize("path", STREAMS)
async def test_an_engine_that_dies_before_its_first_token_fails_no_request(tmp_path: Path, path: str) -> None:
    async with ScriptedEngine() as dies, ScriptedEngine() as lives:
        for engine in (dies, lives):
            scripted(engine).scripts[path] = STREAMS[path]
        dies.die_after_chunks = 1
        async with served([dies.url, lives.url], tmp_path, policy=ROUND_ROBIN) as gateway:
            for _ in range(2):
                answer, _ = await stream(gateway, path)
                assert answer == b"".join(STREAMS[path])
        assert dies.bodies


async def test_a_broken_stream_ends_with_an_error_in_the_format_of_its_api(
    gateway: ServedGateway, engine: ScriptedEngine
) -> None:
    engine.die_after_chunks = 3
    for path, chunks in STREAMS.items():
        engine.scripts[path] = chunks
        answer, decision_id = await stream(gateway, path)
        kind, _, data = answer.decode().rstrip().rpartition("\n\n")[2].partition("\n")
        reported = json.loads(data.removeprefix("data: "))
        assert (kind, reported["type"]) == ("event: error", "error")
        assert (reported if path == "/v1/responses" else reported["error"])["code"] == "broken_stream"
        assert (await explained(gateway, decision_id))["outcome"]["state"] == "failed"


@pytest.mark.parametrize("path", STREAMS)
async def test_a_tenant_without_access_to_hits_sees_none(
    gateway: ServedGateway, engine: ScriptedEngine, path: str
) -> None:
    engine.scripts[path] = STREAMS[path]
    answer, _ = await stream(gateway, path, OTHER_KEY)
    assert b"64" not in answer
    engine.scripts[path] = json.dumps(WHOLE[path]).encode()
    _, reported, _ = await gateway.post(path, {"model": MODEL, **BODIES[path]}, key=OTHER_KEY)
    assert (reported["usage"]["input_tokens"], "64" in json.dumps(reported)) == (100, False)


async def test_anthropic_clients_can_send_their_key_in_x_api_key(
    gateway: ServedGateway, engine: ScriptedEngine
) -> None:
    body = {"model": MODEL, **BODIES["/v1/messages"]}
    assert (await gateway.post("/v1/messages", body, key=None, headers={"x-api-key": KEY}))[0] == 200
    assert not {"x-api-key", "authorization"} & set(engine.headers[0])


@pytest.mark.parametrize(
    ("path", "body", "key", "status", "kind"),
    [
        ("/v1/messages", BODIES["/v1/messages"], None, 401, "authentication_error"),
        ("/v1/messages", {**BODIES["/v1/messages"], "model": "other"}, KEY, 404, "not_found_error"),
        ("/v1/messages", {"max_tokens": 1}, KEY, 400, "invalid_request_error"),
        ("/v1/messages/batches", {}, KEY, 404, "not_found_error"),
        ("/v1/messages/count_tokens", b"[", KEY, 400, "invalid_request_error"),
    ],
)
async def test_errors_below_messages_have_the_anthropic_format(
    gateway: ServedGateway, path: str, body: Any, key: str | None, status: int, kind: str
) -> None:
    got, answer, _ = await gateway.post(path, body if isinstance(body, bytes) else {"model": MODEL, **body}, key=key)
    assert (got, answer["type"], answer["error"]["type"]) == (status, "error", kind)


async def test_edge_errors_have_the_anthropic_format_too(gateway: ServedGateway) -> None:
    headers = {"content-encoding": "br"}
    status, answer, _ = await gateway.post("/v1/messages", b"{}", headers=headers)
    assert (status, answer["type"], answer["error"]["code"]) == (415, "error", "encoded_body")


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/responses", {"input": []}, "input"),
        ("/v1/responses", {"input": 5}, "input"),
        ("/v1/embeddings", {"input": {}}, "input"),
        ("/v1/embeddings", {"input": [1, -1]}, "input"),
        ("/rerank", {"query": "x", "documents": []}, "documents"),
        ("/score", {"text_2": "x"}, "query"),
    ],
)
async def test_a_malformed_prompt_is_rejected_by_field_name(
    gateway: ServedGateway, engine: ScriptedEngine, path: str, body: dict[str, Any], param: str
) -> None:
    status, answer, _ = await gateway.post(path, {"model": MODEL, **body})
    assert (status, answer["error"]["param"], engine.bodies) == (400, param, [])


@pytest.mark.parametrize("asked", [{"n": 2, "best_of": 3}, {"n": "2", "best_of": 3.0}, {"n": "3"}])
async def test_several_choices_count_as_several_decodes(
    gateway: ServedGateway, engine: ScriptedEngine, asked: dict[str, Any]
) -> None:
    engine.pause_s = 5.0
    body = {"model": MODEL, **BODIES["/v1/completions"], "stream": True, **asked}
    asking = asyncio.create_task(gateway.post("/v1/completions", body))
    await until(lambda: gateway.pool.router.reservations.dispatched(0) == 3)
    gateway.pool.router.check()
    asking.cancel()
    await until(gateway.is_idle)


async def test_rankings_are_routed_by_load_with_their_read_tokens(
    gateway: ServedGateway, engine: ScriptedEngine
) -> None:
    body = {"model": MODEL, "query": "q" * 400, "documents": ["d" * 400] * 3}
    _, _, headers = await gateway.post("/rerank", body)
    record = gateway.app.recent.get(headers["x-headway-decision"])
    assert (record.key_source, record.decision.prompt_tokens) == ("unmatched", 600)
    assert engine.tokenize_calls == 0


async def test_an_image_is_a_separate_key_and_never_too_long(engine: ScriptedEngine, tmp_path: Path) -> None:
    def ask(image: str) -> dict[str, Any]:
        parts = [
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64," + image}},
        ]
        return {"model": MODEL, "messages": [{"role": "user", "content": parts}]}

    async with served([engine.url], tmp_path, key_source="approximate", block_bytes=16, max_prompt_tokens=500) as ours:
        keys = []
        for image in ("a" * 100_000, "a" * 100_000, "b" * 100_000):
            status, _, headers = await ours.post("/v1/chat/completions", ask(image))
            assert status == 200
            record = ours.app.recent.get(headers["x-headway-decision"])
            assert record.decision.prompt_tokens < 1000
            keys.append(record.decision.hit_tokens)
    image = engine.bodies[0]["messages"][0]["content"][1]
    assert len(image.pop("uuid")) == 32
    assert engine.bodies[0] == ask("a" * 100_000)
    assert keys[0] == 0
    assert keys[1] > keys[2] > 0


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/v1/responses", {"max_output_tokens": 1, "stream": False, "store": False, "background": False}),
        ("/v1/messages", {"max_tokens": 1, "stream": False}),
    ],
)
async def test_prefill_and_decode_engines_share_a_request(tmp_path: Path, path: str, asked: dict[str, Any]) -> None:
    async with ScriptedEngine() as prefill, ScriptedEngine() as decode:
        answer = {**WHOLE[path], "kv_transfer_params": {"remote_block_ids": [[7]]}}
        prefill.scripts[path] = json.dumps(answer).encode()
        decode.scripts[path] = STREAMS[path]
        async with served([prefill.url, decode.url], tmp_path, roles=["prefill", "decode"]) as gateway:
            _, decision_id = await stream(gateway, path)
            assert {**prefill.bodies[0], "kv_transfer_params": 0} == {
                "model": MODEL,
                **BODIES[path],
                **asked,
                "kv_transfer_params": 0,
            }
            assert decode.bodies[0]["kv_transfer_params"] == {"remote_block_ids": [[7]]}
            assert (await explained(gateway, decision_id))["outcome"]["cached_tokens"] == 64


async def test_a_request_without_handoff_support_stays_on_the_decode_engine(tmp_path: Path) -> None:
    async with ScriptedEngine() as prefill, ScriptedEngine() as decode:
        scripted(decode)
        async with served([prefill.url, decode.url], tmp_path, roles=["prefill", "decode"]) as gateway:
            status, _, _ = await gateway.post("/v1/embeddings", {"model": MODEL, **BODIES["/v1/embeddings"]})
            assert (status, prefill.bodies, len(decode.bodies)) == (200, [], 1)
            assert gateway.gateway.metrics.handoffs.value("pool", "alone") == 1
