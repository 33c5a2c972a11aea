"""The ledger against the requests sent, while the gateway, web, jobs, and the bus are killed. One key per request."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from controlplane.project.first_run.demo_names import SERVED_MODEL
from tests.patience import PATIENCE_S, until
from tests.program import ROOT, Program

pytestmark = pytest.mark.processes
REQUESTS = 90
PARTS = ("gateway", "jobs", "gateway", "web", "bus")
CREATE_KEYS = """
from controlplane.access.api_keys import create_api_key
from controlplane.fleet.topology import create_tenant
from controlplane.platform.actor import program
# Only keys of operators see hits in their answers.
tenant = create_tenant({tenant!r}, "Ledger", actor=program("test"))
for number in range({count}):
    key, text = create_api_key(tenant, actor=program("test"), name=str(number), scopes=["infer", "manage"])
    print("KEY", key.key_id, text)
"""
COUNTS = "requests, failed, rejected, interrupted, client_ended, prompt_tokens, cached_tokens, output_tokens"


@dataclass
class Sent:
    """One request: its key, and the usage of an answer that came whole."""

    key_id: str
    usage: dict[str, Any] | None = None


def created_keys(program: Program, tenant: str, count: int) -> list[tuple[str, str]]:
    """Return (id, text) of new keys of a new tenant."""
    script = CREATE_KEYS.format(tenant=tenant, count=count)
    environment = {**os.environ, "HEADWAY_STATE_DIR": str(program.state_dir)}
    command = [sys.executable, "manage.py", "shell", "-c", script]
    done = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
    return [tuple(line.split()[1:]) for line in done.stdout.splitlines() if line.startswith("KEY")]  # type: ignore[misc]


async def chat(client: aiohttp.ClientSession, program: Program, text: str, number: int, sent: Sent) -> None:
    """Send one chat request, every third one without a stream, and keep the usage of a whole answer."""
    body = {
        "model": SERVED_MODEL,
        "messages": [{"role": "user", "content": f"{number} " + "Count every token once. " * (10 + number)}],
        "max_tokens": 5 + number % 30,
    }
    if number % 3:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    headers = {"Authorization": f"Bearer {text}"}
    try:
        async with client.post(f"{program.url}/v1/chat/completions", json=body, headers=headers) as answer:
            data = await answer.read()
            if answer.status == 200:
                sent.usage = _usage(data.decode(), streamed="stream" in body)
    except aiohttp.ClientError:
        pass


def _usage(text: str, *, streamed: bool) -> dict[str, Any] | None:
    """Return the usage of a whole answer, None of one that was cut off."""
    if not streamed:
        return dict(json.loads(text)["usage"])
    events = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    if not events or events[-1] != "[DONE]":
        return None
    return next(usage for event in events[-2::-1] if (usage := json.loads(event).get("usage")))


async def kill_parts(program: Program, seed: int) -> None:
    rng = random.Random(seed)
    for part in PARTS:
        await asyncio.sleep(rng.uniform(0.3, 1.2))
        pid = program.part_pid(part)
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            await until(lambda part=part, pid=pid: program.part_pid(part) not in (None, pid))  # type: ignore[misc]


def rows_of(program: Program, tenant: str) -> dict[str, tuple[int, ...]]:
    """Return the counts of each key, summed over days."""
    sums = ", ".join(f"sum({name})" for name in COUNTS.split(", "))
    question = f"SELECT key_id, {sums} FROM controlplane_usageday WHERE tenant = ? GROUP BY key_id"  # noqa: S608
    return {row[0]: row[1:] for row in program.ask(question, tenant)}


async def until_delivered(program: Program) -> None:
    """Return once the gateway has no entry that the control plane has not confirmed."""
    deadline = time.monotonic() + PATIENCE_S
    async with aiohttp.ClientSession() as client:
        while time.monotonic() < deadline:
            async with client.get(f"{program.url}/metrics") as answer:
                if "headway_usage_entries_waiting 0.0" in await answer.text():
                    return
            await asyncio.sleep(0.3)
    raise AssertionError("usage was not delivered")


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=[pytest.mark.thorough, pytest.mark.long]) for seed in range(2, 11))]
)
async def test_each_whole_answer_is_counted_once_through_kills_of_every_process(program: Program, seed: int) -> None:
    tenant = f"ledger-{seed}"
    keys = await asyncio.to_thread(created_keys, program, tenant, REQUESTS)
    await until(lambda: program.post("/api/v1/route", {"model": SERVED_MODEL, "prompt": "x"})[0] == 200)
    await asyncio.sleep(2)
    sent = [Sent(key_id) for key_id, _ in keys]
    async with aiohttp.ClientSession() as client:
        killing = asyncio.create_task(kill_parts(program, seed))
        asking = []
        for number, (_, text) in enumerate(keys):
            asking.append(asyncio.create_task(chat(client, program, text, number, sent[number])))
            await asyncio.sleep(0.06)
        await asyncio.gather(killing, *asking)
    # The gauge is that of the last delivery, which may precede the last answers.
    answered = {item.key_id for item in sent if item.usage is not None}
    await until(lambda: answered <= rows_of(program, tenant).keys())
    await until_delivered(program)
    rows, whole = rows_of(program, tenant), 0
    for item in sent:
        row = rows.get(item.key_id, (0,) * 8)
        requests, _failed, _rejected, interrupted, _client_ended, prompt, cached, output = row
        if item.usage is None:
            # Cut off or never begun. Its engine reported at most this, and perhaps before the kill.
            assert requests <= 1
            assert prompt + output == 0 or interrupted == 0
            continue
        whole += 1
        details = item.usage.get("prompt_tokens_details") or {}
        usage = item.usage["prompt_tokens"], details.get("cached_tokens") or 0, item.usage["completion_tokens"]
        assert (requests, interrupted) == (1, 0), item
        assert (prompt, cached, output) == usage, item
    assert whole > REQUESTS // 3
    assert whole < REQUESTS
