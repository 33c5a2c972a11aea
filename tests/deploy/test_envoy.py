"""The real Envoy with our configuration and the endpoint picker, in front of a real gateway and engines."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from bench.live.loopback_ports import free_port
from tests.deploy.real_proxy import ROOT, binary, require_grpc, running

require_grpc()

from deploy.envoy.picker import PickerSettings
from deploy.envoy.picker import served as served_picker
from tests.deploy.behind import (
    CHAT,
    ask,
    counted,
    outlives_kept_connections,
    serves_other_apis,
    takes_requests_to_ranks,
)
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import KEY, ServedGateway, served
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.processes


@dataclass
class Envoy:
    """A running Envoy."""

    url: str
    admin_url: str

    async def counts(self, name: str, at_least: int) -> None:
        """Wait until one of Envoy's own counters has reached this value."""
        async with asyncio.timeout(PATIENCE_S), aiohttp.ClientSession() as client:
            while True:
                async with client.get(f"{self.admin_url}/stats?filter={name}") as answer:
                    match = re.search(rf"{name}: (\d+)", await answer.text())
                if match and int(match[1]) >= at_least:
                    return
                await asyncio.sleep(0.05)


@asynccontextmanager
async def envoy(tmp_path: Path, picker_port: int, engines: list[str]) -> AsyncIterator[Envoy]:
    """Run Envoy with our file, changed to the test's ports."""
    program, port, admin = binary("envoy"), free_port(), free_port()
    text = (ROOT / "deploy/envoy/envoy.yaml").read_text()
    ports = [url.rpartition(":")[2] for url in engines]
    for ours, here in (("8080", port), ("9002", picker_port), ("8101", ports[0]), ("8102", ports[1])):
        assert f"port_value: {ours}" in text
        text = text.replace(f"port_value: {ours}", f"port_value: {here}")
    text += f"admin: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {admin}}}}}}}\n"
    (tmp_path / "envoy.yaml").write_text(text)
    command = [program, "-c", str(tmp_path / "envoy.yaml"), "--use-dynamic-base-id", "--concurrency", "1", "-l", "warn"]
    async with running(command, port, tmp_path / "envoy.out"):
        yield Envoy(f"http://127.0.0.1:{port}", f"http://127.0.0.1:{admin}")


@pytest.fixture
async def gateway(engines: list[ScriptedEngine], tmp_path: Path) -> AsyncIterator[ServedGateway]:
    async with served([engine.url for engine in engines], tmp_path) as gateway:
        yield gateway


def settings(url: str) -> PickerSettings:
    return PickerSettings(url, KEY, "127.0.0.1:0", late_s=PATIENCE_S)


async def test_a_request_goes_to_the_decided_engine_and_its_outcome_is_reported(
    engines: list[ScriptedEngine], gateway: ServedGateway, tmp_path: Path
) -> None:
    urls = [engine.url for engine in engines]
    async with served_picker(settings(gateway.url)) as (_, port), envoy(tmp_path, port, urls) as proxy:
        await proxy.counts("cluster.endpoint_picker.membership_healthy", 1)
        status, text, _ = await ask(proxy.url, CHAT, authorization="Bearer client-secret")
        assert (status, json.loads(text)["choices"][0]["message"]["content"]) == (200, "Hello")
        streamed = {**CHAT, "stream": True, "stream_options": {"include_usage": True}, "pad": "x" * 200_000}
        status, text, _ = await ask(proxy.url, streamed)
        assert (status, text.rstrip()[-12:]) == (200, "data: [DONE]")
        changed = {**CHAT, "kv_transfer_params": {}}
        assert (await ask(proxy.url, changed))[0] == 200
        await counted(gateway, completed=3, first_tokens=3, cached_tokens=192)
        sent = [body for engine in engines for body in engine.bodies]
        assert len(sent) == 3
        assert not any("kv_transfer_params" in body for body in sent)
        assert any(len(body.get("pad", "")) == 200_000 for body in sent)
        assert not any("authorization" in headers for engine in engines for headers in engine.headers)


async def test_a_request_reaches_the_chosen_data_parallel_rank(engines: list[ScriptedEngine], tmp_path: Path) -> None:
    url = engines[0].url
    async with (
        served([url, url], tmp_path / "state", ranks=(0, 1)) as gateway,
        served_picker(settings(gateway.url)) as (_, port),
        envoy(tmp_path, port, [url, url]) as proxy,
    ):
        await proxy.counts("cluster.endpoint_picker.membership_healthy", 1)
        await takes_requests_to_ranks(proxy.url, engines[0])


async def test_bodies_of_other_apis_are_parsed_by_path(
    engines: list[ScriptedEngine], gateway: ServedGateway, tmp_path: Path
) -> None:
    urls = [engine.url for engine in engines]
    async with served_picker(settings(gateway.url)) as (_, port), envoy(tmp_path, port, urls) as proxy:
        await proxy.counts("cluster.endpoint_picker.membership_healthy", 1)
        await serves_other_apis(proxy.url, gateway, engines)


async def test_a_first_token_is_reported_during_the_response_and_a_disconnect_cancels(
    engines: list[ScriptedEngine], gateway: ServedGateway, tmp_path: Path
) -> None:
    for engine in engines:
        engine.chunks, engine.pause_s = ["more "] * 100_000, 0.02
    urls = [engine.url for engine in engines]
    async with served_picker(settings(gateway.url)) as (_, port), envoy(tmp_path, port, urls) as proxy:
        await proxy.counts("cluster.endpoint_picker.membership_healthy", 1)
        async with (
            aiohttp.ClientSession() as client,
            client.post(proxy.url + "/v1/chat/completions", json={**CHAT, "stream": True}) as answer,
        ):
            assert answer.status == 200
            await counted(gateway, first_tokens=1)
            answer.close()
        await counted(gateway, first_tokens=1, cancelled=1)


async def test_rejections_and_errors_of_engines_are_distinguished(
    engines: list[ScriptedEngine], gateway: ServedGateway, tmp_path: Path
) -> None:
    urls = [engine.url for engine in engines]
    async with served_picker(settings(gateway.url)) as (_, port), envoy(tmp_path, port, urls) as proxy:
        await proxy.counts("cluster.endpoint_picker.membership_healthy", 1)
        status, text, _ = await ask(proxy.url, {**CHAT, "model": "nobody"})
        assert (status, json.loads(text)["error"]["code"]) == (404, "model_not_found")
        for engine in engines:
            engine.status = 500
        assert (await ask(proxy.url, CHAT))[0] == 500
        await counted(gateway, failed=1)


async def test_a_request_is_retried_when_its_engine_closes_an_idle_connection(tmp_path: Path) -> None:
    async with (
        ScriptedEngine() as engine,
        served([engine.url], tmp_path) as gateway,
        served_picker(settings(gateway.url)) as (_, port),
        envoy(tmp_path, port, [engine.url] * 2) as proxy,
    ):
        await proxy.counts("cluster.endpoint_picker.membership_healthy", 1)
        await outlives_kept_connections(proxy.url, engine)
        await counted(gateway, completed=4, first_tokens=4, cached_tokens=256)


async def test_without_a_picker_the_engines_take_turns_and_envoy_counts_it(
    engines: list[ScriptedEngine], tmp_path: Path
) -> None:
    async with envoy(tmp_path, free_port(), [engine.url for engine in engines]) as proxy:
        for _ in range(4):
            assert (await ask(proxy.url, CHAT, **{"x-data-parallel-rank": "7"}))[0] == 200
        assert all(engine.bodies for engine in engines)
        assert not any("x-data-parallel-rank" in headers for engine in engines for headers in engine.headers)
        await proxy.counts("http.llm.ext_proc.failure_mode_allowed", 4)
