"""Gateway, web, and jobs as separate processes: each is killed while decisions and pages are requested."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bench.live.decision_history import DecisionHistory
from controlplane.project.first_run.demo_names import SERVED_MODEL
from tests.patience import PATIENCE_S, until
from tests.program import Program, processes, running_program

pytestmark = pytest.mark.processes
CALLERS = 4
SEEDS = tuple(map(int, os.environ.get("KILL_SEEDS", "1").split(",")))
"""Each kills every process at other moments; `make soak` tries twenty."""


@asynccontextmanager
async def deciding(program: Program) -> AsyncIterator[DecisionHistory]:
    """Request decisions during the block. A request whose connection fails is repeated."""
    history = DecisionHistory([program.url], program.secrets["api_key"], SERVED_MODEL)
    stop = asyncio.Event()
    asking = asyncio.create_task(history.run(CALLERS, stop))
    try:
        yield history
    finally:
        stop.set()
        await asking


async def kill(program: Program, part: str, seed: int) -> None:
    """Kill a part at a random time, and return once its successor runs."""
    await asyncio.sleep(random.Random(f"{part}{seed}").uniform(0.5, 2.5))
    pid = program.part_pid(part)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await until(lambda: program.part_pid(part) not in (None, pid))


@asynccontextmanager
async def signed_in(program: Program) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as client:
        async with client.get(f"{program.url}/login") as page:
            token = re.search(r'csrfmiddlewaretoken" value="([^"]+)"', await page.text())
        assert token is not None
        form = {"csrfmiddlewaretoken": token[1], "username": "admin", "password": program.secrets["admin_password"]}
        async with client.post(f"{program.url}/login", data=form, headers={"referer": program.url}) as answer:
            assert str(answer.url) == f"{program.url}/"
        yield client


async def status_of(client: aiohttp.ClientSession, url: str) -> int:
    async with client.get(url) as answer:
        await answer.read()
        return answer.status


async def test_pages_live_data_and_the_api_are_served_through_the_gateway(program: Program) -> None:
    async with signed_in(program) as client:
        for path in ("/", "/requests", "/policies", "/access", "/audit", "/api/v1/engines"):
            assert await status_of(client, program.url + path) == 200, path
        async with client.ws_connect(f"{program.url}/ws/fleet", headers={"origin": program.url}) as live:
            for _ in range(3):
                assert (await live.receive(PATIENCE_S)).type is aiohttp.WSMsgType.BINARY
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await client.ws_connect(f"{program.url}/ws/fleet", headers={"origin": "http://elsewhere.example"})
    assert [row[0] for row in program.ask("SELECT DISTINCT address FROM controlplane_consolesession")] == ["127.0.0.1"]


async def test_console_shows_decisions_that_only_the_gateway_holds(program: Program) -> None:
    status, answer = program.post("/api/v1/route", {"model": SERVED_MODEL, "prompt": "never ended", "wait": False})
    assert status == 200, answer
    name = json.loads(answer)["decision_id"]
    async with signed_in(program) as client:
        async with client.get(f"{program.url}/fleet/decisions/{name}") as answered:
            story = await answered.json()
        assert story["outcome"]["state"] == "running"
        assert await status_of(client, f"{program.url}/requests/{name}") == 200
        async with client.get(f"{program.url}/fleet/engines/{story['decision']['engine_id']}") as card:
            assert (await card.json())["decisions"]
    assert not program.ask("SELECT 1 FROM controlplane_decisionindex WHERE decision_id = ?", name)


async def test_node_managers_register_and_store_blocks(program: Program) -> None:
    key = program.secrets["kv_api_key"]
    async with aiohttp.ClientSession(headers={"authorization": f"Bearer {key}"}) as client:

        async def nodes() -> list[dict[str, Any]]:
            async with client.get(f"{program.url}/api/v1/kv_nodes") as answer:
                return list((await answer.json())["results"])

        async with asyncio.timeout(PATIENCE_S):
            while [node["state"] for node in await nodes()] != ["serving", "serving"]:
                await asyncio.sleep(0.1)
            while all("'stored': 0" in str(node["report"]) for node in await nodes()):
                await asyncio.sleep(0.1)
    assert not [words for _, words in processes() if key in " ".join(words)]


@pytest.mark.parametrize("seed", SEEDS)
async def test_killed_web_fails_no_decision_and_pages_report_it_until_web_is_back(program: Program, seed: int) -> None:
    async with deciding(program) as history, aiohttp.ClientSession(headers={"accept": "text/html"}) as client:
        await kill(program, "web", seed)
        assert await status_of(client, f"{program.url}/login") == 503
        deadline = time.monotonic() + PATIENCE_S
        while await status_of(client, f"{program.url}/login") != 200:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)
    assert len(history.decided) > 50
    assert {(item.status, item.attempts) for item in history.decided} == {(200, 1)}


@pytest.mark.parametrize("seed", SEEDS)
async def test_killed_jobs_fail_no_decision_and_are_restarted(program: Program, seed: int) -> None:
    async with deciding(program) as history:
        await kill(program, "jobs", seed)
        (stored,) = program.ask("SELECT count(*) FROM controlplane_decisionindex")
        await until(lambda: program.ask("SELECT count(*) FROM controlplane_decisionindex") > [stored])
    assert {(item.status, item.attempts) for item in history.decided} == {(200, 1)}


@pytest.mark.parametrize("seed", SEEDS)
async def test_killed_bus_server_fails_no_decision_and_console_and_jobs_go_on_over_its_successor(
    program: Program, seed: int
) -> None:
    async with signed_in(program) as client, deciding(program) as history:
        await kill(program, "bus", seed)
        # Web asks the gateway over the bus, and jobs wake over it and store what the gateway sends over it.
        decided = len(history.decided)
        await until(lambda: len(history.decided) > decided + 10)
        await until_shown(client, program)
        (stored,) = program.ask("SELECT count(*) FROM controlplane_decisionindex")
        await until(lambda: program.ask("SELECT count(*) FROM controlplane_decisionindex") > [stored])
    assert {(item.status, item.attempts) for item in history.decided} == {(200, 1)}


async def until_shown(client: aiohttp.ClientSession, program: Program) -> None:
    """Return once the console shows a running decision, which only the gateway holds."""
    status, answer = program.post("/api/v1/route", {"model": SERVED_MODEL, "prompt": "never ended", "wait": False})
    assert status == 200, answer
    deadline = time.monotonic() + PATIENCE_S
    while await status_of(client, f"{program.url}/fleet/decisions/{json.loads(answer)['decision_id']}") != 200:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("seed", SEEDS)
async def test_killed_gateway_loses_only_requests_in_flight_and_is_restarted(program: Program, seed: int) -> None:
    async with signed_in(program) as client:
        async with deciding(program) as history:
            await kill(program, "gateway", seed)
            # One that starts while the machine is busy may know of no engine at first, and says so.
            wanted = len(history.decided) + 2 * CALLERS
            await until(lambda: len(history.decided) > wanted and history.decided[-1].status == 200)
            before = len(history.decided)
            await until(lambda: len(history.decided) > before + 100)
        assert {item.status for item in history.decided} <= {200, 503}, "those in flight were asked again"
        assert {item.status for item in history.decided[before:]} == {200}
        assert sum(item.attempts > 1 for item in history.decided) <= CALLERS
        assert await status_of(client, f"{program.url}/") == 200, "web went on, and so did its sessions"


async def test_stream_of_a_killed_gateway_is_truncated(program: Program) -> None:
    headers = {"authorization": f"Bearer {program.secrets['api_key']}"}
    body = {"model": SERVED_MODEL, "messages": [{"role": "user", "content": "hi"}], "stream": True, "max_tokens": 2000}
    async with (
        aiohttp.ClientSession(headers=headers) as client,
        accepted(client, f"{program.url}/v1/chat/completions", body) as stream,
    ):
        await stream.content.readany()
        await kill(program, "gateway", 0)
        with pytest.raises(aiohttp.ClientError):
            await stream.read()


@asynccontextmanager
async def accepted(client: aiohttp.ClientSession, url: str, body: object) -> AsyncIterator[aiohttp.ClientResponse]:
    """Repeat the POST until the response is not a 429; a gateway on a busy machine may be late."""
    while True:
        async with client.post(url, json=body) as answer:
            if answer.status != 429:
                yield answer
                return
            await asyncio.sleep(float(answer.headers["Retry-After"]))


@pytest.mark.thorough
async def test_killed_supervisor_leaves_no_process_and_nothing_that_blocks_a_restart(tmp_path: Path) -> None:
    for _ in range(2):
        with running_program(tmp_path / "var") as program:
            parts = [program.part_pid(part) for part in ("gateway", "web", "jobs", "bus")]
            assert None not in parts
            program.process.kill()
            await until(lambda: not any(map(alive, parts)))  # noqa: B023 - called before the next round


def alive(pid: int | None) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


async def test_web_and_jobs_have_a_lower_priority(program: Program) -> None:
    gateway, web, jobs = (program.part_pid(part) for part in ("gateway", "web", "jobs"))
    assert None not in (gateway, web, jobs)
    assert os.getpriority(os.PRIO_PROCESS, gateway or 0) < os.getpriority(os.PRIO_PROCESS, web or 0)
    assert os.getpriority(os.PRIO_PROCESS, gateway or 0) < os.getpriority(os.PRIO_PROCESS, jobs or 0)
