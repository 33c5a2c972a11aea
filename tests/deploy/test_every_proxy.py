"""What nginx, HAProxy, and Envoy with our configurations have in common, in front of a real gateway and engines."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.deploy.behind import CHAT, OTHER_APIS, ask, counted
from tests.deploy.real_proxy import require_grpc
from tests.deploy.test_haproxy import haproxy
from tests.deploy.test_nginx import Fleet, nginx
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import MODEL, served
from tests.patience import until

pytestmark = pytest.mark.processes
every_proxy = pytest.mark.parametrize("kind", ["nginx", "haproxy", "envoy"])
not_envoy = pytest.mark.parametrize("kind", ["nginx", "haproxy"])
"""Envoy asks the picker about chat and other prompts alone, and words rejections itself."""


@asynccontextmanager
async def proxied(
    kind: str, tmp_path: Path, engines: list[ScriptedEngine], ranks: tuple[int, ...] = ()
) -> AsyncIterator[Any]:
    """Run a gateway over these engines and a proxy of this kind in front; yield the proxy's URL and the gateway."""
    urls = [engine.url for engine in engines]
    (tmp_path / "state").mkdir()
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(served(urls, tmp_path / "state", ranks=ranks))
        if kind == "nginx":
            fleet = Fleet({f"engine-{number}": url for number, url in enumerate(urls)})
            proxy: Any = await stack.enter_async_context(nginx(tmp_path, gateway.url, fleet))
        elif kind == "haproxy":
            proxy = await stack.enter_async_context(haproxy(tmp_path, gateway.url, engines))
        else:
            require_grpc()
            from tests.deploy.test_envoy import picked

            proxy = await stack.enter_async_context(picked(tmp_path, gateway.url, urls))
        yield proxy.url, gateway


@every_proxy
async def test_a_request_goes_to_the_decided_engine_and_its_outcome_is_reported(
    engines: list[ScriptedEngine], tmp_path: Path, kind: str
) -> None:
    async with proxied(kind, tmp_path, engines) as (url, gateway):
        status, text, _ = await ask(url, CHAT, authorization="Bearer client-secret")
        assert (status, json.loads(text)["choices"][0]["message"]["content"]) == (200, "Hello")
        streamed = {**CHAT, "stream": True, "stream_options": {"include_usage": True}}
        status, text, _ = await ask(url, streamed)
        assert (status, text.rstrip()[-12:]) == (200, "data: [DONE]")
        await counted(gateway, completed=2, first_tokens=2, cached_tokens=128)
        sent = [headers for engine in engines for headers in engine.headers]
        assert len(sent) == 2
        assert not any("authorization" in headers for headers in sent)


@every_proxy
async def test_each_request_reaches_the_data_parallel_rank_of_its_decision(
    engines: list[ScriptedEngine], tmp_path: Path, kind: str
) -> None:
    """The engine is both ranks. A client's own header changes nothing."""
    async with proxied(kind, tmp_path, [engines[0], engines[0]], ranks=(0, 1)) as (url, _):
        for number in range(8):
            body = {**CHAT, "messages": [{"role": "user", "content": f"{number} " * 20}]}
            status, text, _ = await ask(url, body, **{"x-data-parallel-rank": "7"})
            assert status == 200, text
    assert {headers["x-data-parallel-rank"] for headers in engines[0].headers} == {"0", "1"}


@not_envoy
async def test_clients_get_models_and_readiness_with_any_key(
    engines: list[ScriptedEngine], tmp_path: Path, kind: str
) -> None:
    async with proxied(kind, tmp_path, engines) as (url, _), aiohttp.ClientSession() as client:
        async with client.get(url + "/v1/models", headers={"authorization": "Bearer client-secret"}) as answer:
            assert (answer.status, [item["id"] for item in (await answer.json())["data"]]) == (200, [MODEL])
        async with client.get(url + "/health") as answer:
            assert answer.status == 200


@every_proxy
async def test_bodies_of_other_apis_are_parsed_by_path(
    engines: list[ScriptedEngine], tmp_path: Path, kind: str
) -> None:
    for engine in engines:
        engine.scripts = {path: answer for path, (_, answer) in OTHER_APIS.items()}
    async with proxied(kind, tmp_path, engines) as (url, gateway):
        for path, (body, _) in OTHER_APIS.items():
            status, text, _ = await ask(url, {"model": MODEL, **body}, path)
            assert status == 200, (path, text)
        await counted(gateway, completed=3, first_tokens=3, cached_tokens=128)
        assert (await ask(url, {"model": MODEL, "input": 7}, "/v1/responses"))[0] == 400


@every_proxy
async def test_a_first_token_is_reported_during_the_response_and_a_disconnect_cancels(
    engines: list[ScriptedEngine], tmp_path: Path, kind: str
) -> None:
    for engine in engines:
        engine.chunks, engine.pause_s = ["more "] * 100_000, 0.02
    async with proxied(kind, tmp_path, engines) as (url, gateway), aiohttp.ClientSession() as client:
        async with client.post(url + "/v1/chat/completions", json={**CHAT, "stream": True}) as answer:
            assert answer.status == 200
            await counted(gateway, first_tokens=1)
            answer.close()
        # A client that went away is no evidence against the engine.
        await counted(gateway, first_tokens=1, cancelled=1)


@every_proxy
async def test_engine_errors_count_as_failures_and_client_errors_do_not(
    engines: list[ScriptedEngine], tmp_path: Path, kind: str
) -> None:
    async with proxied(kind, tmp_path, engines) as (url, gateway):
        for status in (400, 500):
            for engine in engines:
                engine.status = status
            assert (await ask(url, CHAT))[0] == status
        await counted(gateway, cancelled=1, failed=1)
        status, text, _ = await ask(url, {**CHAT, "model": "nobody"})
        assert (status, json.loads(text)["error"]["code"]) == (404, "model_not_found")


@every_proxy
async def test_a_request_is_retried_when_its_engine_closes_an_idle_connection(
    engines: list[ScriptedEngine], tmp_path: Path, kind: str
) -> None:
    engines[0].serves_once = True
    async with proxied(kind, tmp_path, engines[:1]) as (url, gateway):
        for _ in range(4):
            assert (await ask(url, CHAT))[0] == 200
        await counted(gateway, completed=4, first_tokens=4, cached_tokens=256)


@not_envoy
async def test_a_rejection_reaches_the_client_with_its_retry_after(
    engines: list[ScriptedEngine], tmp_path: Path, kind: str
) -> None:
    async with proxied(kind, tmp_path, engines) as (url, gateway):
        for engine in engines:
            await engine.stop()
        await until(lambda: gateway.app._unready() == "No engine is available.")
        status, text, headers = await ask(url, CHAT)
        assert (status, json.loads(text)["error"]["code"]) == (503, "no_engine")
        assert int(headers["Retry-After"]) >= 1
    assert not any(engine.bodies for engine in engines)
