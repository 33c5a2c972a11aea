"""The vLLM adapter against engines with correct, malformed, huge, slow, and missing responses."""

from __future__ import annotations

from array import array
from collections.abc import AsyncIterator

import aiohttp
import msgspec
import pytest
import pytest_asyncio
from aiohttp import web

from bench.live.loopback_ports import free_port
from gateway.pools.engines.engine_metrics import LightLoad
from gateway.pools.engines.health_probe import EngineAnswerError, EngineUnreachableError
from gateway.pools.engines.vllm_adapter import KvEventSource, ModelCard, VllmAdapter
from tests.gateway.fake_engine import METRICS, FakeEngine, fake_engine


@pytest_asyncio.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    async with fake_engine() as running:
        yield running


@pytest_asyncio.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(auto_decompress=False) as made:
        yield made


@pytest.fixture
def adapter(engine: FakeEngine, session: aiohttp.ClientSession) -> VllmAdapter:
    return VllmAdapter(session, engine.url + "/", served_model="m", bearer="secret", timeout_s=0.5)


async def test_load_comes_from_the_load_endpoint(adapter: VllmAdapter) -> None:
    assert await adapter.load() == LightLoad(7, None)


async def test_load_falls_back_to_metrics_and_remembers_it(adapter: VllmAdapter, engine: FakeEngine) -> None:
    del engine.answers["/load"]
    assert await adapter.load() == LightLoad(3, 2, 0.25)
    assert await adapter.load() == LightLoad(3, 2, 0.25)
    assert [path for _, path, _, _ in engine.asked] == ["/load", "/v1/loads", "/metrics", "/metrics"]


async def test_the_waiting_count_is_scanned_from_metrics(adapter: VllmAdapter, engine: FakeEngine) -> None:
    assert await adapter.load(with_waiting=True) == LightLoad(3, 2, 0.25)
    assert await adapter.load() == LightLoad(7, None)
    assert [path for _, path, _, _ in engine.asked] == ["/metrics", "/load"]


async def test_a_rank_reads_its_own_load_and_sends_its_header(
    engine: FakeEngine, session: aiohttp.ClientSession
) -> None:
    other = METRICS.replace(b'engine="0"', b'engine="1"').replace(b" 3.0\n", b" 5.0\n")
    engine.set("/metrics", 200, METRICS + other, content_type="text/plain")
    adapter = VllmAdapter(session, engine.url, served_model="m", timeout_s=0.5, rank=1)
    assert await adapter.load() == LightLoad(5, 2, 0.25)
    assert (await adapter.full_metrics()).running == 5
    assert {path for _, path, _, _ in engine.asked} == {"/metrics"}
    assert {headers["X-data-parallel-rank"] for _, _, headers, _ in engine.asked} == {"1"}


async def test_an_error_status_of_the_load_endpoint_is_an_answer_error(
    adapter: VllmAdapter, engine: FakeEngine
) -> None:
    engine.set("/load", 500, b"")
    with pytest.raises(EngineAnswerError, match="load answered 500") as caught:
        await adapter.load()
    assert caught.value.status == 500


@pytest.mark.parametrize("body", [b"", b"[]", b'{"server_load":"x"}', b'{"server_load":-1}', b"[" * 60_000, b"\xff"])
async def test_an_invalid_load_is_an_answer_error(adapter: VllmAdapter, engine: FakeEngine, body: bytes) -> None:
    engine.set("/load", 200, body)
    with pytest.raises(EngineAnswerError):
        await adapter.load()


async def test_full_metrics_are_parsed(adapter: VllmAdapter) -> None:
    metrics = await adapter.full_metrics()
    assert (metrics.running, metrics.process_start) == (3, 1000.5)


@pytest.mark.parametrize(
    ("status", "body", "content_type"),
    [
        (200, b"<html></html>", "text/html"),
        (200, b"{}", "application/json"),
        (200, METRICS.replace(b"} 3.0", b"} NaN"), "text/plain"),
        (200, b"vllm:x 1\n" * 1_200_000, "text/plain"),
        (500, b"", "text/plain"),
        (404, b"", "text/plain"),
    ],
)
async def test_malformed_metrics_are_reported_as_unreadable(
    adapter: VllmAdapter, engine: FakeEngine, status: int, body: bytes, content_type: str
) -> None:
    engine.set("/metrics", status, body, content_type=content_type)
    with pytest.raises(EngineAnswerError, match=r"^metrics are unreadable: ") as caught:
        await adapter.full_metrics()
    assert caught.value.status is None


async def test_a_compressed_response_is_not_decompressed(adapter: VllmAdapter, engine: FakeEngine) -> None:
    engine.set("/metrics", 200, b"\x1f\x8b", content_type="text/plain", headers={"Content-Encoding": "gzip"})
    with pytest.raises(EngineAnswerError, match="compressed"):
        await adapter.full_metrics()


async def test_redirects_are_not_followed_and_the_token_is_not_leaked(
    adapter: VllmAdapter, engine: FakeEngine, session: aiohttp.ClientSession
) -> None:
    async with fake_engine() as other:
        engine.set("/health", 307, b"", headers={"Location": f"{other.url}/health"})
        with pytest.raises(EngineAnswerError, match="health answered 307"):
            await adapter.health()
        assert other.asked == []
    assert engine.asked[0][2]["Authorization"] == "Bearer secret"


async def test_the_sglang_load_is_the_sum_of_its_ranks(adapter: VllmAdapter, engine: FakeEngine) -> None:
    engine.set("/load", 404, b"")
    engine.set(
        "/v1/loads",
        200,
        b'{"version":"0.5.23","loads":[{"dp_rank":0,"num_running_reqs":3,"num_waiting_reqs":1,"token_usage":0.5},'
        b'{"dp_rank":1,"num_running_reqs":2,"num_waiting_reqs":0,"token_usage":0.25}]}',
    )
    assert await adapter.load() == LightLoad(5, 1, 0.375)
    assert await adapter.load(with_waiting=True) == LightLoad(5, 1, 0.375)


@pytest.mark.parametrize(
    "loads", [b"[]", b'[{"num_running_reqs":-1,"num_waiting_reqs":0}]', b'[{"num_running_reqs":1}]', b'"x"']
)
async def test_invalid_sglang_loads_are_an_answer_error(adapter: VllmAdapter, engine: FakeEngine, loads: bytes) -> None:
    engine.set("/load", 404, b"")
    engine.set("/v1/loads", 200, b'{"loads":%s}' % loads)
    with pytest.raises(EngineAnswerError, match="loads"):
        await adapter.load()


async def test_a_paused_engine_is_unhealthy_although_health_responds(adapter: VllmAdapter, engine: FakeEngine) -> None:
    engine.set("/is_paused", 200, b'{"is_paused":true}')
    with pytest.raises(EngineAnswerError, match="it is paused"):
        await adapter.health()
    engine.set("/is_paused", 200, b'{"is_paused":false}')
    await adapter.health()


@pytest.mark.parametrize(("status", "body", "asked"), [(404, b"", 1), (403, b"", 1), (500, b"", 2), (200, b"pong", 2)])
async def test_an_engine_that_does_not_report_pauses_is_healthy(
    adapter: VllmAdapter, engine: FakeEngine, status: int, body: bytes, asked: int
) -> None:
    engine.set("/is_paused", status, body)
    await adapter.health()
    await adapter.health()
    assert [path for _, path, _, _ in engine.asked].count("/is_paused") == asked


async def test_an_engine_whose_core_is_in_a_long_step_is_healthy(adapter: VllmAdapter, engine: FakeEngine) -> None:
    """The core reports whether it is paused; /health is answered separately."""
    engine.hangs_at = "/is_paused"
    await adapter.health()
    engine.hangs_at = "/health"
    with pytest.raises(EngineUnreachableError, match="timed out"):
        await adapter.health()


async def test_a_trial_of_an_engine_without_completions_uses_an_embedding(
    adapter: VllmAdapter, engine: FakeEngine
) -> None:
    with pytest.raises(EngineAnswerError, match="404"):
        await adapter.generate_one()
    engine.set("/v1/embeddings", 200, b'{"data":[]}')
    await adapter.generate_one()
    engine.set("/v1/completions", 500, b"")
    with pytest.raises(EngineAnswerError, match="500"):
        await adapter.generate_one()


async def test_an_unhealthy_response_carries_the_reason(adapter: VllmAdapter, engine: FakeEngine) -> None:
    await adapter.health()
    engine.set("/health", 503, b"")
    with pytest.raises(EngineAnswerError, match="health answered 503"):
        await adapter.health()


async def test_a_closed_port_is_a_refused_connection(session: aiohttp.ClientSession) -> None:
    with pytest.raises(EngineUnreachableError, match="connection refused") as caught:
        await VllmAdapter(session, f"http://127.0.0.1:{free_port()}").health()
    assert caught.value.refused


async def test_silence_is_a_timeout(adapter: VllmAdapter, engine: FakeEngine) -> None:
    engine.hang = True
    with pytest.raises(EngineUnreachableError, match="timed out") as caught:
        await adapter.load()
    assert caught.value.timed_out


async def test_a_truncated_response_raises_our_error(adapter: VllmAdapter, engine: FakeEngine) -> None:
    def cut() -> web.StreamResponse:
        response = web.Response(body=b"short", headers={"Content-Length": "5"})
        response.content_length = 5000
        return response

    engine.answers["/load"] = cut
    with pytest.raises((EngineAnswerError, EngineUnreachableError)):
        await adapter.load()


@pytest.mark.parametrize("url", ["http://", "http://[::1", "not a url", "http://127.0.0.1:99999"])
async def test_a_malformed_url_raises_our_error(session: aiohttp.ClientSession, url: str) -> None:
    with pytest.raises((EngineAnswerError, EngineUnreachableError)):
        await VllmAdapter(session, url).health()


async def test_models_are_listed(adapter: VllmAdapter, engine: FakeEngine) -> None:
    engine.set("/v1/models", 200, b'{"data":[{"id":"m","root":"m"},{"id":"lora","parent":"m","created":7}]}')
    assert await adapter.models() == (ModelCard("m", root="m"), ModelCard("lora", parent="m", created=7))


async def test_a_text_is_tokenized(adapter: VllmAdapter, engine: FakeEngine) -> None:
    engine.set("/tokenize", 200, b'{"count":3,"max_model_len":512,"tokens":[1,2,4294967295]}')
    assert await adapter.tokenize("hello", extra={"add_special_tokens": False}) == array("I", [1, 2, 4294967295])
    assert msgspec.json.decode(engine.asked[0][3]) == {"prompt": "hello", "model": "m", "add_special_tokens": False}


async def test_messages_are_tokenized_unchanged(adapter: VllmAdapter, engine: FakeEngine) -> None:
    engine.set("/tokenize", 200, b'{"tokens":[5]}')
    messages = [{"role": "user", "content": "hello"}]
    assert await adapter.tokenize(msgspec.Raw(msgspec.json.encode(messages))) == array("I", [5])
    assert msgspec.json.decode(engine.asked[0][3]) == {"messages": messages, "model": "m"}


@pytest.mark.parametrize("tokens", [b"[-1]", b"[4294967296]", b'["a"]', b"[1.5]", b"null"])
async def test_out_of_range_token_ids_are_an_answer_error(
    adapter: VllmAdapter, engine: FakeEngine, tokens: bytes
) -> None:
    engine.set("/tokenize", 200, b'{"tokens":%s}' % tokens)
    with pytest.raises(EngineAnswerError):
        await adapter.tokenize("x")


async def test_event_source_addresses_are_resolved_to_the_engines_host(
    adapter: VllmAdapter, engine: FakeEngine
) -> None:
    engine.set(
        "/kv_event_sources",
        200,
        b'{"1":{"publisher":"zmq","endpoint":"tcp://*:5558","replay_endpoint":null,"topic":""},'
        b'"0":{"publisher":"zmq","endpoint":"tcp://*:5557","replay_endpoint":"tcp://0.0.0.0:6557","hwm":100000}}',
    )
    assert await adapter.kv_event_sources() == (
        KvEventSource("tcp://127.0.0.1:5557", "tcp://127.0.0.1:6557", 0),
        KvEventSource("tcp://127.0.0.1:5558", "", 1),
    )


async def test_an_empty_list_of_event_sources_differs_from_a_missing_one(
    adapter: VllmAdapter, engine: FakeEngine
) -> None:
    assert await adapter.kv_event_sources() is None
    engine.set("/kv_event_sources", 200, b"{}")
    assert await adapter.kv_event_sources() == ()
