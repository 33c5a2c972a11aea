"""A gateway process in front of two prefill and two decode engines: handoffs, failed handoffs, and a killed engine."""

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import aiohttp
import pytest

from bench.live.live_fleet import API_KEY, MODEL, LiveFleet, live_fleet
from routing.policy.policy_document import RoutingPolicy
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.processes

OUTPUT = 24


async def ask(session: aiohttp.ClientSession, fleet: LiveFleet, number: int) -> tuple[bool, dict[str, Any], str]:
    """Return whether the response was complete, its usage, and the decision's id."""
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": f"{number} " + "Tell me who computes and who answers. " * 60}],
        "max_tokens": OUTPUT,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    async with session.post(f"{fleet.url}/v1/chat/completions", json=body) as answer:
        assert answer.status == 200, await answer.text()
        lines = [line.strip() async for line in answer.content if line.strip()]
    usage = next((json.loads(line[6:])["usage"] for line in lines if b'"usage"' in line), {})
    return lines[-1] == b"data: [DONE]", usage, answer.headers["x-headway-decision"]


async def explain(session: aiohttp.ClientSession, fleet: LiveFleet, decision_id: str) -> dict[str, Any]:
    async with session.get(f"{fleet.url}/api/v1/explain/{decision_id}") as answer:
        return dict(await answer.json())


async def set_fault(session: aiohttp.ClientSession, fleet: LiveFleet, positions: range, fault: str) -> None:
    for position in positions:
        url = fleet.snapshot.engines[position].url
        async with session.post(f"{url}/handoff_fault", json={"fault": fault}) as answer:
            assert answer.status == 200


def handoffs(fleet: LiveFleet) -> dict[str, int]:
    with urlopen(f"{fleet.url}/metrics", timeout=PATIENCE_S) as answer:
        lines = answer.read().decode().splitlines()
    counted = [line for line in lines if line.startswith("headway_handoffs_total{")]
    return {line.split('outcome="')[1].split('"')[0]: int(float(line.rpartition(" ")[2])) for line in counted}


async def test_requests_survive_failed_handoffs_and_a_killed_decode_engine(tmp_path: Path) -> None:
    roles = ("prefill", "prefill", "decode", "decode")
    fast = {"time_scale": 10.0, "block_tokens": 64, "num_blocks": 2000}
    # Faults hit every request here, so the retry budget must cover all of them.
    policy = RoutingPolicy(retry_budget=1.0)
    with live_fleet(tmp_path, policy, engines=4, roles=roles, **fast) as fleet:  # type: ignore[arg-type]
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {API_KEY}"}) as session:
            answers = await asyncio.gather(*(ask(session, fleet, number) for number in range(12)))
            assert all(whole for whole, _, _ in answers)
            assert {usage["completion_tokens"] for _, usage, _ in answers} == {OUTPUT}
            assert {usage["prompt_tokens_details"]["cached_tokens"] for _, usage, _ in answers} == {0}
            explanations = [await explain(session, fleet, name) for _, _, name in answers]
            pairs = {(item["decision"]["engine_id"], item["decision"]["pair"]["engine_id"]) for item in explanations}
            assert {first for first, _ in pairs} == {"engine-01", "engine-02"}
            assert {second for _, second in pairs} == {"engine-03", "engine-04"}
            assert handoffs(fleet) == {"done": 12}

            await set_fault(session, fleet, range(2), "lose")
            whole, usage, name = await ask(session, fleet, 100)
            assert (whole, usage["completion_tokens"]) == (True, OUTPUT)
            assert len((await explain(session, fleet, name))["attempts"]) == 6
            assert handoffs(fleet) == {"done": 12, "decode_failed": 2, "alone": 1}
            await set_fault(session, fleet, range(2), "")

            asked = [asyncio.create_task(ask(session, fleet, 200 + number)) for number in range(20)]
            await asyncio.sleep(0.2)
            await asyncio.to_thread(fleet.kill_engine, 2)
            ends = await asyncio.gather(*asked)
            broken = [await explain(session, fleet, name) for whole, _, name in ends if not whole]
            assert all(item["outcome"]["error"] == "broken_stream" for item in broken), "it had its first byte"
            after = [await ask(session, fleet, 300 + number) for number in range(4)]
            assert all(whole for whole, _, _ in after)
            last = await explain(session, fleet, after[-1][2])
            assert last["decision"]["pair"]["engine_id"] == "engine-04"
