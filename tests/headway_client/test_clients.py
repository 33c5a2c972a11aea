"""The clients, and the openai package over their transports, against a real gateway and engines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, closing
from pathlib import Path

import httpx2
import openai
import pytest

from headway_client import (
    AsyncHeadway,
    AsyncHeadwayTransport,
    Headway,
    HeadwayTransport,
    RejectedError,
)
from tests.deploy.behind import OTHER_APIS
from tests.gateway.ports import listen
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import KEY, MODEL, ServedGateway, served
from tests.patience import PATIENCE_S

CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "hello " * 20}]}


@pytest.fixture
async def engine() -> AsyncIterator[ScriptedEngine]:
    async with ScriptedEngine() as engine:
        yield engine


@pytest.fixture
async def gateway(engine: ScriptedEngine, tmp_path: Path) -> AsyncIterator[ServedGateway]:
    async with served([engine.url], tmp_path) as gateway:
        yield gateway


@asynccontextmanager
async def outcomes(gateway: ServedGateway, **ended: int) -> AsyncIterator[None]:
    """Wait at the end of the block until this many requests have each outcome."""
    yield
    wanted = [f'headway_requests_total{{outcome="{name}",pool="pool"}} {count}.0' for name, count in ended.items()]
    async with asyncio.timeout(PATIENCE_S):
        while not set(wanted) <= set((await gateway.metrics()).splitlines()):
            await asyncio.sleep(0.02)


async def test_a_request_is_decided_and_reported(gateway: ServedGateway, engine: ScriptedEngine) -> None:
    headway = AsyncHeadway(gateway.url, KEY, late_s=PATIENCE_S)
    async with outcomes(gateway, completed=1, failed=1, cancelled=1), aclosing(headway) as client:
        for verb in ("complete", "fail", "cancel"):
            route = await client.decide(CHAT, patience_s=PATIENCE_S)
            assert route.engine_url == engine.url
            await client.report(route, "first_token")
            await client.report(route, verb, {"cached_tokens": 16})
    assert 'headway_cached_tokens_total{model_name="tiny",pool="pool"} 16.0' in await gateway.metrics()
    assert client.lost_reports == 0


async def test_the_client_fails_open_to_known_engines_when_the_gateway_is_down(engine: ScriptedEngine) -> None:
    with listen() as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        async with aclosing(AsyncHeadway(url, KEY, engines=[engine.url], late_s=0.05)) as late:
            assert (await late.decide(CHAT)).engine_url == engine.url
            assert (await late.decide(CHAT)).engine_url == engine.url
    assert late.decisions.fail_opens == {"late": 1, "away": 1}
    with closing(Headway(url, KEY, engines=[engine.url])) as down:
        assert down.decide(CHAT).engine_url == engine.url
    assert down.decisions.fail_opens == {"down": 1}


async def test_the_client_retries_after_the_stated_time(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("headway_client.clients.time.sleep", slept.append)
    answers = [httpx2.Response(429, headers={"retry-after": "3"}, content=b"{}")] * 2
    good = b'{"decision_id": "d", "engine": {"url": "http://a:1"}, "body": {}}'
    replies = iter([*answers, httpx2.Response(200, content=good), httpx2.Response(429, content=b"{}")])
    client = Headway("http://headway", KEY)
    client.close()
    client.calls._http = httpx2.Client(transport=httpx2.MockTransport(lambda _: next(replies)))
    assert client.decide(CHAT, patience_s=600.0).engine_url == "http://a:1"
    assert slept == [3.0, 3.0]
    with pytest.raises(RejectedError):
        client.decide(CHAT, patience_s=600.0)


async def test_the_openai_client_sends_its_request_directly_to_the_engine(
    gateway: ServedGateway, engine: ScriptedEngine
) -> None:
    def ask() -> tuple[str, list[str]]:
        with closing(Headway(gateway.url, KEY, late_s=PATIENCE_S)) as headway:
            http = httpx2.Client(transport=HeadwayTransport(headway, "engine-key"))
            with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=KEY, http_client=http, max_retries=20) as client:
                whole = client.chat.completions.create(**CHAT).choices[0].message.content
                stream = client.chat.completions.create(**CHAT, stream=True, stream_options={"include_usage": True})
                parts = [chunk.choices[0].delta.content for chunk in stream if chunk.choices]
                with client.chat.completions.create(**CHAT, stream=True) as left:
                    next(iter(left))
        return whole, parts

    engine.pause_s = 0.05
    async with outcomes(gateway, completed=2, cancelled=1):
        assert await asyncio.to_thread(ask) == ("Hello", ["Hel", "lo"])
    assert {headers["authorization"] for headers in engine.headers} == {"Bearer engine-key"}
    assert 'headway_cached_tokens_total{model_name="tiny",pool="pool"} 128.0' in await gateway.metrics()
    assert 'headway_ttft_seconds_count{model_name="tiny",pool="pool"} 3.0' in await gateway.metrics()


async def test_the_async_openai_client_distinguishes_engine_failures_from_bad_requests(
    gateway: ServedGateway, engine: ScriptedEngine
) -> None:
    headway = AsyncHeadway(gateway.url, KEY, late_s=PATIENCE_S)
    http = httpx2.AsyncClient(transport=AsyncHeadwayTransport(headway))
    async with (
        outcomes(gateway, completed=1, failed=1, cancelled=1),
        aclosing(headway),
        openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=KEY, http_client=http, max_retries=20) as client,
    ):
        parts = [chunk async for chunk in await client.chat.completions.create(**CHAT, stream=True)]
        assert len(parts) == 2
        engine.status = 400
        with pytest.raises(openai.BadRequestError):
            await client.chat.completions.create(**CHAT)
        engine.status = 500
        with pytest.raises(openai.InternalServerError):
            await _once(client)


async def _once(client: openai.AsyncOpenAI) -> None:
    """Send a request without retries, except after the Retry-After of a busy gateway."""
    while True:
        try:
            await client.with_options(max_retries=0).chat.completions.create(**CHAT)
        except openai.RateLimitError as error:
            await asyncio.sleep(float(error.response.headers["retry-after"]))


async def test_responses_and_messages_go_to_the_engine_chosen_for_them(
    gateway: ServedGateway, engine: ScriptedEngine
) -> None:
    engine.scripts = {path: answer for path, (_, answer) in OTHER_APIS.items()}
    headway = AsyncHeadway(gateway.url, KEY, late_s=PATIENCE_S)
    http = httpx2.AsyncClient(transport=AsyncHeadwayTransport(headway), timeout=PATIENCE_S)
    async with outcomes(gateway, completed=3), aclosing(headway), aclosing(http):
        for path, (body, _) in OTHER_APIS.items():
            assert (await http.post(gateway.url + path, json={"model": MODEL, **body})).status_code == 200
    assert 'headway_cached_tokens_total{model_name="tiny",pool="pool"} 128.0' in await gateway.metrics()
    assert len(engine.bodies) + len(engine.raw_bodies) > 0


async def test_a_request_reaches_the_chosen_data_parallel_rank(engine: ScriptedEngine, tmp_path: Path) -> None:
    async with served([engine.url, engine.url], tmp_path / "ranks", ranks=(0, 1)) as gateway:
        headway = AsyncHeadway(gateway.url, KEY, late_s=PATIENCE_S)
        http = httpx2.AsyncClient(transport=AsyncHeadwayTransport(headway), timeout=PATIENCE_S)
        async with aclosing(headway), aclosing(http):
            for number in range(8):
                body = {**CHAT, "messages": [{"role": "user", "content": f"{number} " * 20}]}
                wish = {"x-data-parallel-rank": "7"}
                assert (
                    await http.post(f"{gateway.url}/v1/chat/completions", json=body, headers=wish)
                ).status_code == 200
    assert {headers["x-data-parallel-rank"] for headers in engine.headers} == {"0", "1"}


async def test_an_agent_announces_a_session_and_withdraws_it(gateway: ServedGateway) -> None:
    async with aclosing(AsyncHeadway(gateway.url, KEY, late_s=PATIENCE_S)) as client:
        assert await client.advise("a session", expected_arrival_s=5) == "unknown"
        await client.withdraw("a session")
        assert (await client.advisory_token("a session")).startswith("at_")
        with pytest.raises(RejectedError):
            await client.advisory_token("a session", expires_in_s=7200)


def test_an_unanswered_advisory_raises_no_error() -> None:
    with closing(Headway("http://127.0.0.1:9", KEY)) as client:
        assert client.advise("a session") == ""
        client.withdraw("a session")
