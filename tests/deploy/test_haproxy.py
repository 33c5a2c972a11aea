"""The real HAProxy with our configuration and script, in front of a real gateway and engines."""

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
from gateway.base.settings import GatewaySettings
from tests.deploy.behind import (
    CHAT,
    ask,
    counted,
)
from tests.deploy.real_proxy import ROOT, binary, running
from tests.gateway.named_services import ALIAS, LARGE, named, serving
from tests.gateway.ports import listen
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import KEY, MODEL, ServedGateway, served
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.processes


@dataclass
class Haproxy:
    """A running HAProxy."""

    url: str
    metrics_url: str

    async def counts(self, name: str, value: str, at_least: int = 1) -> None:
        """Wait until its script has counted at least this many."""
        async with asyncio.timeout(PATIENCE_S), aiohttp.ClientSession() as client:
            while True:
                async with client.get(self.metrics_url) as answer:
                    text = await answer.text()
                match = re.search(rf'headway_haproxy_{name}_total\{{\w+="{value}"\}} (\d+)', text)
                if match and int(match[1]) >= at_least:
                    return
                await asyncio.sleep(0.05)


@asynccontextmanager
async def haproxy(
    tmp_path: Path, gateway_url: str, engines: list[ScriptedEngine] = (), late_ms: int = 30_000
) -> AsyncIterator[Haproxy]:
    """Run HAProxy with our files, changed to the test's ports."""
    program, port, metrics = binary("haproxy"), free_port(), free_port()
    text = (ROOT / "deploy/haproxy/haproxy.cfg").read_text()
    for ours, here in (
        ("127.0.0.1:8000", gateway_url.removeprefix("http://")),
        ("127.0.0.1:8080", f"127.0.0.1:{port}"),
        ("127.0.0.1:8404", f"127.0.0.1:{metrics}"),
        ("/etc/headway/", f"{ROOT}/deploy/haproxy/"),
    ):
        assert ours in text
        text = text.replace(ours, here)
    (tmp_path / "haproxy.cfg").write_text(text)
    environment = {
        "HEADWAY_URL": gateway_url,
        "HEADWAY_API_KEY": KEY,
        "HEADWAY_LATE_MS": str(late_ms),
        "HEADWAY_ENGINES": f"{MODEL}={','.join(engine.url for engine in engines)}" if engines else "",
    }
    command = [program, "-db", "-f", str(tmp_path / "haproxy.cfg")]
    async with running(command, port, tmp_path / "haproxy.out", **environment):
        yield Haproxy(f"http://127.0.0.1:{port}", f"http://127.0.0.1:{metrics}/metrics")


@pytest.fixture
async def gateway(engines: list[ScriptedEngine], tmp_path: Path) -> AsyncIterator[ServedGateway]:
    async with served([engine.url for engine in engines], tmp_path) as gateway:
        yield gateway


async def test_an_engine_that_accepts_no_connection_is_reported(tmp_path: Path) -> None:
    seldom = GatewaySettings(probe_interval_s=600.0)
    async with (
        ScriptedEngine() as engine,
        served([engine.url], tmp_path, gateway_settings=seldom) as gateway,
        haproxy(tmp_path, gateway.url) as proxy,
    ):
        assert (await ask(proxy.url, CHAT))[0] == 200
        await counted(gateway, completed=1, first_tokens=1, cached_tokens=64)
        await engine.stop()
        assert (await ask(proxy.url, CHAT))[0] == 503
        await counted(gateway, completed=1, first_tokens=1, cached_tokens=64, failed=1)


async def test_decisions_and_rejections_are_counted(
    engines: list[ScriptedEngine], gateway: ServedGateway, tmp_path: Path
) -> None:
    async with haproxy(tmp_path, gateway.url) as proxy:
        assert (await ask(proxy.url, CHAT))[0] == 200
        assert (await ask(proxy.url, {**CHAT, "model": "nobody"}))[0] == 404
        await proxy.counts("requests", "decided")
        await proxy.counts("requests", "rejected")
        await proxy.counts("reports", "sent", 2)


@pytest.mark.parametrize("reason", ["down", "late"])
async def test_without_a_response_known_engines_take_turns_and_it_is_counted(
    engines: list[ScriptedEngine], tmp_path: Path, reason: str
) -> None:
    async with silent() as hung:
        url = hung if reason == "late" else f"http://127.0.0.1:{free_port()}"
        async with haproxy(tmp_path, url, engines, late_ms=100) as proxy:
            for _ in range(8):
                assert (await ask(proxy.url, CHAT))[0] == 200
            assert all(len(engine.bodies) >= 2 for engine in engines)
            status, _, headers = await ask(proxy.url, {**CHAT, "model": "nobody"})
            assert (status, headers["Retry-After"]) == (503, "1")
            await proxy.counts("fail_open", reason)
            await proxy.counts("requests", "unavailable")


async def test_engines_named_by_decisions_serve_while_headway_is_down(
    engines: list[ScriptedEngine], tmp_path: Path
) -> None:
    async with served([engine.url for engine in engines], tmp_path) as gateway, haproxy(tmp_path, gateway.url) as proxy:
        assert (await ask(proxy.url, CHAT))[0] == 200
        await counted(gateway, completed=1, first_tokens=1, cached_tokens=64)
        before = sum(len(engine.bodies) for engine in engines)
        gateway.app.drain.begun = True
        for _ in range(4):
            assert (await ask(proxy.url, CHAT))[0] == 200
        assert sum(len(engine.bodies) for engine in engines) == before + 4
        await proxy.counts("fail_open", "error", 4)


async def test_requests_that_haproxy_cannot_handle_are_rejected(engines: list[ScriptedEngine], tmp_path: Path) -> None:
    async with (
        served([engine.url for engine in engines], tmp_path, isolated=True) as gateway,
        haproxy(tmp_path, gateway.url) as proxy,
    ):
        status, text, _ = await ask(proxy.url, CHAT)
        assert (status, json.loads(text)["error"]["code"]) == (501, "isolated_pool")
        for steering in ({**CHAT, "kv_transfer_params": {}}, b'{"model": "tiny", "kv\\u005ftransfer_params" : {}}'):
            status, text, _ = await ask(proxy.url, steering)
            assert (status, json.loads(text)["error"]["code"]) == (400, "bad_field")
        status, text, _ = await ask(proxy.url, {**CHAT, "pad": ["x" * 1000] * 1100})
        assert (status, json.loads(text)["error"]["code"]) == (413, "body_too_large")
        assert not any(engine.bodies for engine in engines)
        await counted(gateway, cancelled=1)


@asynccontextmanager
async def silent() -> AsyncIterator[str]:
    """Serve a gateway that is live and answers no request."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if b"/live" in head.partition(b"\r\n")[0]:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        else:
            await reader.read()
        writer.close()

    with listen() as listener:
        server = await asyncio.start_server(serve, sock=listener)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.close()


async def test_a_named_service_is_rejected_because_engines_know_another_name(
    engines: list[ScriptedEngine], tmp_path: Path
) -> None:
    async with (
        serving(named(engines[:2], None), tmp_path) as gateway,
        haproxy(tmp_path, gateway.url) as proxy,
    ):
        status, text, _ = await ask(proxy.url, {**CHAT, "model": ALIAS})
        assert (status, json.loads(text)["error"]["code"]) == (501, "named_service")
        assert (await ask(proxy.url, {**CHAT, "model": LARGE}))[0] == 200
        assert [body["model"] for body in engines[0].bodies] == [LARGE]
