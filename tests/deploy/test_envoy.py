"""The real Envoy with our configuration and the endpoint picker, in front of a real gateway and engines."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
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
async def envoy(
    tmp_path: Path, picker_port: int, engines: list[str], changes: Mapping[str, str] | None = None
) -> AsyncIterator[Envoy]:
    """Run Envoy with our file, changed to the test's ports. `changes`: further texts and their replacements."""
    program, port, admin = binary("envoy"), free_port(), free_port()
    text = (ROOT / "deploy/envoy/envoy.yaml").read_text()
    ports = [url.rpartition(":")[2] for url in engines]
    for ours, here in (("8080", port), ("9002", picker_port), ("8101", ports[0]), ("8102", ports[1])):
        assert f"port_value: {ours}" in text
        text = text.replace(f"port_value: {ours}", f"port_value: {here}")
    for ours, here in (changes or {}).items():
        assert ours in text
        text = text.replace(ours, here)
    text += f"admin: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {admin}}}}}}}\n"
    (tmp_path / "envoy.yaml").write_text(text)
    command = [program, "-c", str(tmp_path / "envoy.yaml"), "--use-dynamic-base-id", "--concurrency", "1", "-l", "warn"]
    async with running(command, port, tmp_path / "envoy.out"):
        yield Envoy(f"http://127.0.0.1:{port}", f"http://127.0.0.1:{admin}")


@pytest.fixture
async def gateway(engines: list[ScriptedEngine], tmp_path: Path) -> AsyncIterator[ServedGateway]:
    async with served([engine.url for engine in engines], tmp_path) as gateway:
        yield gateway


@asynccontextmanager
async def picked(
    tmp_path: Path,
    gateway_url: str,
    engines: list[str],
    changes: Mapping[str, str] | None = None,
    fallback: tuple[str, ...] = (),
) -> AsyncIterator[Envoy]:
    """Run the endpoint picker of a gateway, and Envoy with it."""
    settings = PickerSettings(gateway_url, KEY, "127.0.0.1:0", fallback, late_s=PATIENCE_S)
    # A pool of one engine has both places of our file.
    async with served_picker(settings) as (_, port), envoy(tmp_path, port, (engines * 2)[:2], changes) as proxy:
        await proxy.counts("cluster.endpoint_picker.membership_healthy", 1)
        yield proxy


async def test_large_and_changed_bodies_reach_the_engine_as_the_gateway_wants_them(
    engines: list[ScriptedEngine], gateway: ServedGateway, tmp_path: Path
) -> None:
    async with picked(tmp_path, gateway.url, [engine.url for engine in engines]) as proxy:
        for body in ({**CHAT, "pad": "x" * 200_000}, {**CHAT, "kv_transfer_params": {}}):
            assert (await ask(proxy.url, body))[0] == 200
        await counted(gateway, completed=2, first_tokens=2, cached_tokens=128)
        sent = [body for engine in engines for body in engine.bodies]
        assert len(sent) == 2
        assert not any("kv_transfer_params" in body for body in sent)
        assert any(len(body.get("pad", "")) == 200_000 for body in sent)


async def test_without_a_picker_the_engines_take_turns_and_envoy_counts_it(
    engines: list[ScriptedEngine], tmp_path: Path
) -> None:
    async with envoy(tmp_path, free_port(), [engine.url for engine in engines]) as proxy:
        for _ in range(4):
            assert (await ask(proxy.url, CHAT, **{"x-data-parallel-rank": "7"}))[0] == 200
        assert all(engine.bodies for engine in engines)
        assert not any("x-data-parallel-rank" in headers for engine in engines for headers in engine.headers)
        await proxy.counts("http.llm.ext_proc.failure_mode_allowed", 4)
