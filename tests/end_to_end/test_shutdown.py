"""Shutdown of processes by a signal: they drain, end streams that exceed the limit, and exit."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from bench.live.live_fleet import wait_for
from bench.live.loopback_ports import free_ports
from gateway.bus.snapshot_store import SnapshotStore
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import CHAT, KEY, MODEL, SECRET, snapshot
from tests.patience import PATIENCE_S, until
from tests.program import Program, running_program

pytestmark = pytest.mark.processes


@asynccontextmanager
async def gateway(
    directory: Path, engine: ScriptedEngine, drain_s: int
) -> AsyncIterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run `python -m gateway` over the engine."""
    SnapshotStore(directory, 3600.0).save(snapshot([engine.url]), time.time())
    (port,) = free_ports(1)
    environment = {**os.environ, "HEADWAY_FLEET_SECRET": SECRET.decode(), "HEADWAY_DRAIN_S": str(drain_s)}
    command = [sys.executable, "-m", "gateway", "--state-dir", str(directory), "--port", str(port)]
    process = subprocess.Popen(command, env=environment)
    try:
        await asyncio.to_thread(wait_for, f"http://127.0.0.1:{port}/ready")
        yield f"http://127.0.0.1:{port}", process
    finally:
        process.kill()
        process.wait()


def status_of(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


async def answered(client: aiohttp.ClientSession, url: str) -> int:
    """Return the status after reading the whole response, which releases its connection."""
    async with client.get(url) as answer:
        await answer.read()
        return answer.status


async def ended(process: subprocess.Popen[bytes]) -> int:
    return await asyncio.to_thread(process.wait, PATIENCE_S)


async def test_gateway_on_sigterm_finishes_its_streams_and_rejects_new_requests(tmp_path: Path) -> None:
    async with (
        ScriptedEngine() as engine,
        gateway(tmp_path, engine, 300) as (url, process),
        aiohttp.ClientSession(headers={"authorization": f"Bearer {KEY}"}) as client,
    ):
        engine.chunks, engine.pause_s = ["tok "] * 100, 0.05
        body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "stream": True}
        async with client.post(url + CHAT, json=body) as stream:
            await stream.content.readany()
            process.terminate()
            while await answered(client, f"{url}/ready") != 503:
                await asyncio.sleep(0.05)
            assert await answered(client, f"{url}/live") == 200
            async with client.post(url + CHAT, json=body) as rejected:
                assert rejected.status == 503
                assert (await rejected.json())["error"]["code"] == "shutting_down"
            assert (await stream.content.read()).endswith(b"data: [DONE]\n\n")
        assert await ended(process) == 0


@pytest.mark.parametrize(("sign", "drain_s"), [(signal.SIGTERM, 1), (signal.SIGINT, 300)])
async def test_stream_that_exceeds_the_drain_limit_ends_with_an_error_event(
    tmp_path: Path, sign: signal.Signals, drain_s: int
) -> None:
    async with (
        ScriptedEngine() as engine,
        gateway(tmp_path, engine, drain_s) as (url, process),
        aiohttp.ClientSession(headers={"authorization": f"Bearer {KEY}"}) as client,
    ):
        engine.chunks, engine.pause_s = ["tok "] * 100_000, 0.05
        body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "stream": True}
        async with client.post(url + CHAT, json=body) as stream:
            await stream.content.readany()
            process.send_signal(sign)
            rest = await stream.content.read()
        assert json.loads(rest.rpartition(b"data: ")[2])["error"]["code"] == "shutdown"
        assert await ended(process) == 0


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    with running_program(tmp_path / "var", "--prefill", "1", "--decode", "1") as running:
        yield running


def engine_processes(program: Program) -> set[int]:
    return {
        program.engine_pid(int(url.rsplit(":", 1)[1])) for (url,) in program.ask("SELECT url FROM controlplane_engine")
    }


def gone(pids: set[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


async def test_program_on_sigterm_drains_and_stops_its_engines(program: Program) -> None:
    engines = engine_processes(program)
    assert len(engines) == 2
    headers = {"authorization": f"Bearer {program.secrets['api_key']}"}
    body = {"model": "demo-8b", "messages": [{"role": "user", "content": "hi"}], "stream": True, "max_tokens": 100}
    async with (
        aiohttp.ClientSession(headers=headers) as client,
        client.post(program.url + CHAT, json=body) as stream,
    ):
        await stream.content.readany()
        program.process.terminate()
        while await answered(client, f"{program.url}/ready") != 503:
            await asyncio.sleep(0.05)
        assert await answered(client, f"{program.url}/live") == 200
        assert (await stream.content.read()).endswith(b"data: [DONE]\n\n")
    assert await ended(program.process) == 0
    await until(lambda: gone(engines))


async def test_second_signal_stops_the_program_and_its_engines_at_once(program: Program) -> None:
    engines = engine_processes(program)
    program.process.terminate()
    await until(lambda: status_of(f"{program.url}/ready") == 503)
    program.process.send_signal(signal.SIGINT)
    assert await ended(program.process) == 128 + signal.SIGINT
    await until(lambda: gone(engines))
