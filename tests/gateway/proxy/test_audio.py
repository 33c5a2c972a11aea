"""Forms of the audio API are routed by load and reach engines byte for byte."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.requests.formats.audio_form import AUDIO_BYTES_PER_TOKEN, MAX_PARTS, MAX_VALUE
from gateway.server.http.edge import EdgeSettings
from routing.policy.policy_document import RoutingPolicy, Stage
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import KEY, MODEL, OTHER_KEY, ServedGateway, served
from tests.patience import until

PATH = "/v1/audio/transcriptions"
TYPE = "multipart/form-data; boundary=cut"
SOUND = b"RIFF\x00\xff\r\n--cu\r\n" * 16_000
USAGE = {"prompt_tokens": 500, "completion_tokens": 7, "total_tokens": 507}
WHOLE = json.dumps({"text": "hello", "usage": USAGE}).encode()
CHUNKS = [
    b'data: {"object": "transcription.chunk", "choices": [{"delta": {"content": "hel"}}]}\n\n',
    b'data: {"object": "transcription.chunk", "choices": [{"delta": {"content": "lo"}, "finish_reason": "stop"}]}\n\n',
    b"data: [DONE]\n\n",
]


def form(file: bytes | None = SOUND, **fields: Any) -> bytes:
    """Return a form as curl sends it."""
    parts = [
        b'--cut\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n' % (name.encode(), str(value).encode())
        for name, value in {"model": MODEL, **fields}.items()
    ]
    if file is not None:
        head = b'Content-Disposition: form-data; name="file"; filename="a.wav"\r\nContent-Type: audio/wav'
        parts.append(b"--cut\r\n" + head + b"\r\n\r\n" + file + b"\r\n")
    return b"".join(parts) + b"--cut--\r\n"


async def post(
    gateway: ServedGateway, body: bytes, *, path: str = PATH, key: str | None = KEY, kind: str = TYPE
) -> tuple[int, bytes, dict[str, str]]:
    headers = {"content-type": kind, **({"authorization": f"Bearer {key}"} if key else {})}
    async with gateway.client.post(gateway.url + path, data=io.BytesIO(body), headers=headers) as response:
        return response.status, await response.read(), {name.lower(): value for name, value in response.headers.items()}


@pytest.fixture
async def engine() -> AsyncIterator[ScriptedEngine]:
    async with ScriptedEngine() as engine:
        engine.scripts[PATH] = WHOLE
        yield engine


@pytest.fixture
async def gateway(engine: ScriptedEngine, tmp_path: Path) -> AsyncIterator[ServedGateway]:
    async with served([engine.url], tmp_path, max_prompt_tokens=448) as gateway:
        yield gateway


async def test_an_engine_gets_the_form_unchanged(gateway: ServedGateway, engine: ScriptedEngine) -> None:
    body = form(language="de", response_format="verbose_json")
    status, answer, headers = await post(gateway, body)
    assert (status, answer) == (200, WHOLE)
    assert engine.raw_bodies == [body]
    assert engine.headers[0]["content-type"] == TYPE
    record = gateway.app.recent.get(headers["x-headway-decision"])
    assert record is not None
    assert record.decision.prompt_tokens == 1 + len(SOUND) // AUDIO_BYTES_PER_TOKEN > 448
    assert (record.key_source, record.outcome) == ("unmatched", "completed")
    assert 'headway_proxied_requests_total{path="/v1/audio/transcriptions",pool="pool"} 1' in await gateway.metrics()


async def test_a_streaming_form_is_streamed(gateway: ServedGateway, engine: ScriptedEngine) -> None:
    engine.scripts[PATH] = CHUNKS
    status, answer, headers = await post(gateway, form(stream="true"))
    assert (status, answer) == (200, b"".join(CHUNKS))
    assert headers["content-type"].startswith("text/event-stream")
    record = gateway.app.recent.get(headers["x-headway-decision"])
    assert record is not None and record.first_token_s is not None


@pytest.mark.parametrize("text", ["hello\n", "1\n00:00:00,000 --> 00:00:01,000\nhello\n", "WEBVTT\n\nhello\n"])
async def test_plain_text_responses_pass(gateway: ServedGateway, engine: ScriptedEngine, text: str) -> None:
    engine.scripts[PATH] = text
    status, answer, headers = await post(gateway, form(response_format="srt"))
    assert (status, answer.decode()) == (200, text)
    assert headers["content-type"].startswith("text/plain")


async def test_long_audio_goes_to_the_engine_with_less_work(engine: ScriptedEngine, tmp_path: Path) -> None:
    async with ScriptedEngine() as other:
        least = RoutingPolicy(placement=Stage(name="least_cost"))
        for item in (engine, other):
            item.scripts[PATH] = [b": not yet\n\n", *CHUNKS]
            item.goes_on.clear()
        async with served([engine.url, other.url], tmp_path, policy=least) as gateway:
            tasks = [asyncio.create_task(post(gateway, form(bytes(4 << 20), stream="true")))]
            await until(lambda: engine.raw_bodies or other.raw_bodies)
            busy, free = (engine, other) if engine.raw_bodies else (other, engine)
            for number in range(3):
                tasks.append(asyncio.create_task(post(gateway, form(bytes(1000), stream="true"))))
                await until(lambda number=number: len(free.raw_bodies) == number + 1)
            assert len(busy.raw_bodies) == 1
            for item in (engine, other):
                item.goes_on.set()
            assert [status for status, _, _ in await asyncio.gather(*tasks)] == [200] * 4


async def test_another_engine_takes_over_a_failed_form(engine: ScriptedEngine, tmp_path: Path) -> None:
    async with ScriptedEngine() as other:
        other.scripts[PATH] = WHOLE
        engine.status = 503
        rule = RoutingPolicy(placement=Stage(name="round_robin"), order=Stage(name="fifo"))
        async with served([engine.url, other.url], tmp_path, policy=rule) as gateway:
            body = form()
            for _ in range(2):
                assert (await post(gateway, body))[0] == 200
            assert set(engine.raw_bodies + other.raw_bodies) == {body}
            assert engine.raw_bodies


@pytest.mark.parametrize(
    ("body", "kind", "param"),
    [
        (form(file=None), TYPE, "file"),
        (form(priority=1), TYPE, "priority"),
        (form(cache_salt="x"), TYPE, "cache_salt"),
        (form(model=""), TYPE, "model"),
        (form()[:-4], TYPE, None),
        (form(), "multipart/form-data", None),
        (json.dumps({"model": MODEL}).encode(), "application/json", None),
        (b"".join(form(**{f"f{number}": "" for number in range(MAX_PARTS)}) for _ in range(1)), TYPE, None),
        (form(prompt="x" * (MAX_VALUE + 1)), TYPE, None),
        (form(prompt="x").replace(b"\r\nx\r\n", b"\r\n\xff\r\n"), TYPE, None),
    ],
)
async def test_an_unserviceable_form_is_rejected(
    gateway: ServedGateway, engine: ScriptedEngine, body: bytes, kind: str, param: str | None
) -> None:
    status, answer, _ = await post(gateway, body, kind=kind)
    assert (status, json.loads(answer)["error"]["param"]) == (400, param)
    assert engine.raw_bodies == []


async def test_keys_and_limits_apply_as_for_other_endpoints(engine: ScriptedEngine, tmp_path: Path) -> None:
    edge = EdgeSettings(proxy_body_limit=len(form()))
    async with served([engine.url], tmp_path, edge=edge) as gateway:
        assert (await post(gateway, form(), key=None))[0] == 401
        assert (await post(gateway, form(language="german")))[0] == 413
        assert (await post(gateway, form()))[0] == 200
        status, answer, _ = await post(gateway, form().replace(MODEL.encode(), b"nope"))
        assert (status, json.loads(answer)["error"]["code"]) == (404, "model_not_found")


async def test_a_pool_that_isolates_tenants_serves_no_form(engine: ScriptedEngine, tmp_path: Path) -> None:
    async with served([engine.url], tmp_path, isolated=True) as gateway:
        status, answer, _ = await post(gateway, form(), key=OTHER_KEY)
        assert (status, json.loads(answer)["error"]["code"]) == (501, "isolated_pool")
        assert engine.raw_bodies == []


async def test_a_proxy_that_asks_for_a_decision_on_a_form_is_referred_to_the_proxy_path(gateway: ServedGateway) -> None:
    headers = {"x-original-uri": PATH}
    status, error, _ = await gateway.post("/api/v1/route?wait=false", form(), headers=headers)
    assert (status, error["error"]["code"]) == (400, "is_a_form")


async def test_a_client_disconnect_ends_the_work(gateway: ServedGateway, engine: ScriptedEngine) -> None:
    engine.scripts[PATH] = CHUNKS
    engine.goes_on.clear()
    headers = {"content-type": TYPE, "authorization": f"Bearer {KEY}"}
    body = io.BytesIO(form(stream="true"))
    response = await gateway.client.post(gateway.url + PATH, data=body, headers=headers)
    response.close()
    await until(lambda: any(item.outcome == "cancelled" for item in gateway.app.recent.of_engine("engine-0")))
