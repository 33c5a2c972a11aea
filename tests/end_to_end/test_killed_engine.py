"""A killed engine under traffic fails no request that has not received its first byte."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import aiohttp
import pytest

from bench.live.live_fleet import API_KEY, MODEL, LiveFleet, live_fleet
from routing.policy.policy_document import RoutingPolicy, Stage
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.processes

REQUESTS, PROMPT = 120, "Tell me where you were routed. "


async def ask(session: aiohttp.ClientSession, fleet: LiveFleet, number: int) -> tuple[bool, bool]:
    """Return whether a first byte arrived, and whether the response was complete."""
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": f"{number} " + PROMPT * 60}],
        "max_tokens": 30,
        "stream": True,
    }
    begun = whole = False
    async with session.post(f"{fleet.url}/v1/chat/completions", json=body) as answer:
        assert answer.status == 200, await answer.text()
        async for line in answer.content:
            begun = True
            whole = whole or line.strip() == b"data: [DONE]"
    return begun, whole


def engine_states(fleet: LiveFleet) -> dict[str, str]:
    """Return the state that the gateway exports for each engine."""
    with urlopen(f"{fleet.url}/metrics", timeout=PATIENCE_S) as answer:
        lines = answer.read().decode().splitlines()
    states = {}
    for line in lines:
        if line.startswith("headway_engine_state{") and line.endswith(" 1.0"):
            labels = dict(part.split("=", 1) for part in line[line.index("{") + 1 : line.index("}")].split(","))
            states[json.loads(labels["engine"])] = json.loads(labels["state"])
    return states


async def wait_for_state(fleet: LiveFleet, engine: str, wanted: set[str]) -> None:
    ends_at = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends_at:
        if (await asyncio.to_thread(engine_states, fleet)).get(engine) in wanted:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{engine} is {engine_states(fleet).get(engine)}, not {wanted}")


async def test_killed_engine_fails_no_request_before_its_first_byte_and_returns(tmp_path: Path) -> None:
    policy = RoutingPolicy(placement=Stage(name="round_robin"))
    with live_fleet(tmp_path, policy, engines=3, time_scale=4.0, block_tokens=64, num_blocks=2000) as fleet:
        headers = {"Authorization": f"Bearer {API_KEY}"}
        async with aiohttp.ClientSession(headers=headers) as session:
            asked: list[asyncio.Task[Any]] = []
            for number in range(REQUESTS):
                asked.append(asyncio.create_task(ask(session, fleet, number)))
                await asyncio.sleep(0.03)
                if number == REQUESTS // 3:
                    await asyncio.to_thread(fleet.kill_engine, 0)
            results = await asyncio.gather(*asked)
        assert all(begun for begun, _ in results)
        assert sum(whole for _, whole in results) >= REQUESTS - 20
        name = next(iter(sorted(engine_states(fleet))))
        await wait_for_state(fleet, name, {"lost"})
        await asyncio.to_thread(fleet.start_engine, 0)
        await wait_for_state(fleet, name, {"serving", "degraded"})
