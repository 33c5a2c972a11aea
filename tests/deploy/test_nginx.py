"""The real nginx with our configuration, script and agent, in front of a real gateway and engines."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from bench.gateway.proxy_run.nginx_folder import nginx_folder
from bench.live.loopback_ports import free_port
from deploy.nginx.agent import Agent, AgentSettings
from tests.deploy.behind import (
    CHAT,
    ask,
    counted,
    lists_models,
    outlives_kept_connections,
    serves_other_apis,
    takes_requests_to_ranks,
)
from tests.deploy.real_proxy import binary, running
from tests.gateway.ports import listen
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import KEY, MODEL, ServedGateway, served
from tests.patience import PATIENCE_S, until

pytestmark = pytest.mark.processes


@dataclass
class Fleet:
    """The fleet in the REST API; change it as an operator would."""

    engines: dict[str, str]
    isolated: bool = False

    @asynccontextmanager
    async def listed(self) -> AsyncIterator[str]:
        """Serve both lists; yield the URL."""
        app = web.Application()
        app.router.add_get("/api/v1/engines", self._engines)
        app.router.add_get("/api/v1/pools", self._pools)
        runner = web.AppRunner(app)
        await runner.setup()
        port = free_port()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield f"http://127.0.0.1:{port}"
        await runner.cleanup()

    async def _engines(self, _: web.Request) -> web.Response:
        rows = [{"engine_id": engine_id, "pool": "pool", "connect_url": url} for engine_id, url in self.engines.items()]
        return web.json_response({"results": rows, "next": None})

    async def _pools(self, _: web.Request) -> web.Response:
        row = {"slug": "pool", "served_model": MODEL, "isolated": self.isolated}
        return web.json_response({"results": [row], "next": None})


@dataclass
class Nginx:
    """A running nginx and its agent."""

    url: str
    folder: Path
    agent: Agent

    async def counts(self, name: str, value: str, at_least: int = 1) -> None:
        """Wait until the agent has counted at least this many."""
        await until(lambda: self.agent.counts[name, value] >= at_least)


@asynccontextmanager
async def nginx(tmp_path: Path, gateway_url: str, fleet: Fleet, late: str = "30s") -> AsyncIterator[Nginx]:
    """Run nginx with our files, changed to the test's folder and ports."""
    program, port = binary("nginx"), free_port()
    changes = {
        "proxy_read_timeout 1s": f"proxy_read_timeout {late}",
        "worker_processes auto;": "worker_processes 2; daemon off; user root;",
    }
    configuration = nginx_folder(tmp_path, port, gateway_url.removeprefix("http://"), changes)
    command = [program, "-p", str(tmp_path), "-c", str(configuration)]
    upstreams, feedback = tmp_path / "upstreams.conf", tmp_path / "headway-nginx.sock"
    upstreams.unlink(missing_ok=True)
    async with AsyncExitStack() as stack:
        rest = await stack.enter_async_context(fleet.listed())
        agent = Agent(AgentSettings(gateway_url, rest, KEY, upstreams, feedback, (*command, "-s", "reload")))
        working = asyncio.create_task(agent.run())
        await until(upstreams.exists)
        try:
            await stack.enter_async_context(running(command, port, tmp_path / "nginx.out", HEADWAY_API_KEY=KEY))
            async with asyncio.timeout(PATIENCE_S):
                # The agent's first reload may come before nginx or after it.
                while not agent.counts["reloads", "done"] + agent.counts["reloads", "failed"]:
                    await asyncio.sleep(0.02)
            yield Nginx(f"http://127.0.0.1:{port}", tmp_path, agent)
        finally:
            working.cancel()
            await asyncio.wait([working])


@pytest.fixture
async def gateway(engines: list[ScriptedEngine], tmp_path: Path) -> AsyncIterator[ServedGateway]:
    (tmp_path / "state").mkdir()
    async with served([engine.url for engine in engines], tmp_path / "state") as gateway:
        yield gateway


def fleet_of(engines: list[ScriptedEngine]) -> Fleet:
    return Fleet({f"engine-{number}": engine.url for number, engine in enumerate(engines)})


async def test_a_request_goes_to_the_decided_engine_and_its_outcome_is_reported(
    engines: list[ScriptedEngine], gateway: ServedGateway, tmp_path: Path
) -> None:
    async with nginx(tmp_path, gateway.url, fleet_of(engines)) as proxy:
        status, text, _ = await ask(proxy.url, CHAT, authorization="Bearer client-secret")
        assert (status, json.loads(text)["choices"][0]["message"]["content"]) == (200, "Hello")
        streamed = {**CHAT, "stream": True, "stream_options": {"include_usage": True}}
        status, text, _ = await ask(proxy.url, streamed)
        assert status == 200
        assert text.rstrip().endswith("data: [DONE]")
        await counted(gateway, completed=2, first_tokens=2, cached_tokens=128)
        sent = [headers for engine in engines for headers in engine.headers]
        assert len(sent) == 2
        assert not any("authorization" in headers for headers in sent)
        assert proxy.agent.counts["requests", "decided"] == 2


async def test_a_request_reaches_the_chosen_data_parallel_rank(engines: list[ScriptedEngine], tmp_path: Path) -> None:
    url = engines[0].url
    async with (
        served([url, url], tmp_path / "state", ranks=(0, 1)) as gateway,
        nginx(tmp_path, gateway.url, Fleet({"engine-0": url, "engine-1": url})) as proxy,
    ):
        await takes_requests_to_ranks(proxy.url, engines[0])


async def test_clients_get_models_and_readiness(
    engines: list[ScriptedEngine], gateway: ServedGateway, tmp_path: Path
) -> None:
    async with nginx(tmp_path, gateway.url, fleet_of(engines)) as proxy:
        await lists_models(proxy.url)


async def test_bodies_of_other_apis_are_parsed_by_path(
    engines: list[ScriptedEngine], gateway: ServedGateway, tmp_path: Path
) -> None:
    async with nginx(tmp_path, gateway.url, fleet_of(engines)) as proxy:
        await serves_other_apis(proxy.url, gateway, engines)


async def test_a_first_token_is_reported_during_the_response(
    engines: list[ScriptedEngine], gateway: ServedGateway, tmp_path: Path
) -> None:
    for engine in engines:
        engine.chunks, engine.pause_s = ["more "] * 100_000, 0.02
    async with nginx(tmp_path, gateway.url, fleet_of(engines)) as proxy, aiohttp.ClientSession() as client:
        async with client.post(proxy.url + "/v1/chat/completions", json={**CHAT, "stream": True}) as answer:
            assert answer.status == 200
            await counted(gateway, first_tokens=1)
            answer.close()
        # A client that went away is no evidence against the engine.
        await counted(gateway, first_tokens=1, cancelled=1)


async def test_engine_errors_count_as_failures_and_client_errors_do_not(
    engines: list[ScriptedEngine], gateway: ServedGateway, tmp_path: Path
) -> None:
    async with nginx(tmp_path, gateway.url, fleet_of(engines)) as proxy:
        for status in (400, 500):
            for engine in engines:
                engine.status = status
            assert (await ask(proxy.url, CHAT))[0] == status
        await counted(gateway, cancelled=1, failed=1)


async def test_a_backup_replaces_an_engine_that_accepts_no_connection_and_it_is_reported(
    engines: list[ScriptedEngine], tmp_path: Path
) -> None:
    (tmp_path / "state").mkdir()
    gone = f"http://127.0.0.1:{free_port()}"
    # The gateway has the engine at an address that is healthy; nginx has one without a listener.
    async with served([engines[0].url], tmp_path / "state") as gateway:
        fleet = Fleet({"engine-0": gone, "engine-1": engines[1].url})
        async with nginx(tmp_path, gateway.url, fleet) as proxy:
            assert (await ask(proxy.url, CHAT))[0] == 200
            assert len(engines[1].bodies) == 1
            await counted(gateway, failed=1)


async def test_a_request_is_retried_when_its_engine_closes_an_idle_connection(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    async with (
        ScriptedEngine() as engine,
        served([engine.url], tmp_path / "state") as gateway,
        nginx(tmp_path, gateway.url, fleet_of([engine])) as proxy,
    ):
        await outlives_kept_connections(proxy.url, engine)
        await counted(gateway, completed=4, first_tokens=4, cached_tokens=256)


async def test_rejections_and_their_retry_after_reach_the_client(
    engines: list[ScriptedEngine], gateway: ServedGateway, tmp_path: Path
) -> None:
    async with nginx(tmp_path, gateway.url, fleet_of(engines)) as proxy:
        status, text, _ = await ask(proxy.url, {**CHAT, "model": "nobody"})
        assert (status, json.loads(text)["error"]["code"]) == (404, "model_not_found")
        for engine in engines:
            await engine.stop()
        await until(lambda: gateway.app._unready() == "No engine is available.")
        status, text, headers = await ask(proxy.url, CHAT)
        assert (status, json.loads(text)["error"]["code"]) == (503, "no_engine")
        assert int(headers["Retry-After"]) >= 1
        await proxy.counts("requests", "rejected", 2)
        assert not any(engine.bodies for engine in engines)


@pytest.mark.parametrize("reason", ["down", "late"])
async def test_without_a_response_the_pools_engines_take_turns_and_it_is_counted(
    engines: list[ScriptedEngine], tmp_path: Path, reason: str
) -> None:
    with listen() as silent:
        port = free_port() if reason == "down" else silent.getsockname()[1]
        async with nginx(tmp_path, f"http://127.0.0.1:{port}", fleet_of(engines), late="100ms") as proxy:
            for _ in range(8):
                assert (await ask(proxy.url, CHAT))[0] == 200
            assert all(len(engine.bodies) >= 2 for engine in engines)
            for impossible in ({**CHAT, "model": "nobody"}, {**CHAT, "cache_salt": "mine"}):
                status, _, headers = await ask(proxy.url, impossible)
                assert (status, headers["Retry-After"]) == (503, "1")
            await proxy.counts("requests", f"failed_open_{reason}")
            await proxy.counts("requests", "unavailable")
            assert f'headway_nginx_fail_open_total{{reason="{reason}"}}' in proxy.agent.metrics()


async def test_an_isolating_pool_gets_its_salt_and_no_request_without_it(
    engines: list[ScriptedEngine], tmp_path: Path
) -> None:
    (tmp_path / "state").mkdir()
    async with served([engine.url for engine in engines], tmp_path / "state", isolated=True) as gateway:
        fleet = fleet_of(engines)
        fleet.isolated = True
        async with nginx(tmp_path, gateway.url, fleet) as proxy:
            plain = '{"model": "tiny", "seed": 9007199254740993, "messages": [{"role": "user", "content": "é\\u00e9"}]}'
            assert (await ask(proxy.url, plain.encode()))[0] == 200
            escaped = b'{"model": "tiny", "prompt": "x", "cache\\u005fsalt": "mine", "kv_transfer_params": {}}'
            assert (await ask(proxy.url, escaped, "/v1/completions"))[0] == 200
            await counted(gateway, completed=2, first_tokens=2, cached_tokens=5)
            bodies = [body for engine in engines for body in engine.bodies]
            chat = next(body for body in bodies if "messages" in body)
            assert (chat["seed"], chat["messages"][0]["content"]) == (9007199254740993, "éé")
            other = next(body for body in bodies if "prompt" in body)
            assert "kv_transfer_params" not in other
            assert all(len(body["cache_salt"]) > 20 for body in bodies)
    async with asyncio.timeout(PATIENCE_S):
        fleet = fleet_of(engines)
        fleet.isolated = True
        async with nginx(tmp_path, f"http://127.0.0.1:{free_port()}", fleet) as proxy:
            assert (await ask(proxy.url, CHAT))[0] == 503


async def test_engines_can_be_added_and_removed_without_losing_a_request(
    engines: list[ScriptedEngine], gateway: ServedGateway, tmp_path: Path
) -> None:
    fleet = fleet_of(engines[:1])
    async with nginx(tmp_path, gateway.url, fleet) as proxy:
        statuses: list[int] = []

        async def keep_asking() -> None:
            while True:
                statuses.append((await ask(proxy.url, {**CHAT, "stream": True}))[0])

        asking = [asyncio.create_task(keep_asking()) for _ in range(2)]
        reloads = proxy.agent.counts["reloads", "done"]
        for number in range(3):
            fleet.engines = fleet_of(engines[: 1 + (number + 1) % 2]).engines
            await proxy.counts("reloads", "done", reloads + number + 1)
            seen = len(statuses)
            async with asyncio.timeout(PATIENCE_S):
                while len(statuses) < seen + 4:
                    assert not any(item.done() for item in asking), [item for item in asking if item.done()]
                    await asyncio.sleep(0.02)
        for item in asking:
            item.cancel()
        await asyncio.wait(asking)
        assert set(statuses) == {200}
        assert re.search(r"headway_engine_engine-1 ", (tmp_path / "upstreams.conf").read_text())
