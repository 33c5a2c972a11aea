"""A flood of advisories beside decisions: `python -m bench.advisories --json OUT`.

One tenant has conversations of several turns and asks for decisions; another one sends ten times the advisories that
its API key may, in a process of its own, for sessions that it has. Rounds with and without the flood alternate, on one
fleet of simulated engines without node managers. Per round: p99 of the decisions as their caller sees them, and the
share of prompt tokens that engines found cached. Reported: the ratio of the median p99s, and the fall of the median
share.
"""

from __future__ import annotations

import asyncio
import hashlib
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import aiohttp

from bench.live.live_fleet import API_KEY, MODEL, LiveFleet, live_fleet
from bench.report import Target, command_line, write_report
from gateway.advisories.source_limits import PER_S
from gateway.contracts.snapshot import ApiKeyEntry
from routing.policy.policy_document import RoutingPolicy

FLOOD_KEY = "sy_key_of_a_flood_on_loopback"
FLOOD_PER_S = 10 * PER_S
ROUNDS = 4
ROUND_S = 8.0
DECISIONS_PER_S = 40.0
SESSIONS = 8
_PARTS = 10


async def flood(url: str) -> None:
    """Send advisories at ten times the limit until this process is ended."""
    headers = {"authorization": f"Bearer {FLOOD_KEY}"}
    async with aiohttp.ClientSession(headers=headers) as client:
        for session in range(SESSIONS):
            body = {"model": MODEL, "prompt": f"flood {session} " * 600, "session_id": f"f-{session}", "max_tokens": 1}
            await (await client.post(f"{url}/v1/completions", json=body)).read()
        number = 0

        async def sender() -> None:
            nonlocal number
            while True:
                number += 1
                began = time.monotonic()
                body = {"session_id": f"f-{number % SESSIONS}"}
                async with client.post(f"{url}/api/v1/advisories", json=body) as answer:
                    await answer.read()
                await asyncio.sleep(max(0.0, _PARTS / FLOOD_PER_S - (time.monotonic() - began)))

        await asyncio.gather(*(sender() for _ in range(_PARTS)))


async def measured(fleet: LiveFleet, name: str) -> tuple[float, float]:
    """Return the p99 of decisions in seconds, and the share of prompt tokens that were cached, over one round."""
    headers, took, tokens = {"authorization": f"Bearer {API_KEY}"}, list[float](), [0, 0]
    ends = time.monotonic() + ROUND_S
    async with aiohttp.ClientSession(headers=headers) as client:

        async def decide() -> None:
            number = 0
            while time.monotonic() < ends:
                number += 1
                began = time.monotonic()
                body = {"model": MODEL, "prompt": f"{name} decision {number} " * 100}
                async with client.post(f"{fleet.url}/api/v1/route", json=body) as answer:
                    await answer.read()
                took.append(time.monotonic() - began)
                await asyncio.sleep(max(0.0, 1 / DECISIONS_PER_S - took[-1]))

        async def converse(session: int) -> None:
            prompt = f"{name} session {session} " * 300
            while time.monotonic() < ends:
                body = {"model": MODEL, "prompt": prompt, "session_id": f"{name}-{session}", "max_tokens": 4}
                async with client.post(f"{fleet.url}/v1/completions", json=body) as answer:
                    usage = (await answer.json()).get("usage") or {}
                tokens[0] += int(usage.get("prompt_tokens", 0))
                tokens[1] += int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)
                prompt += "and another turn of it " * 40
                await asyncio.sleep(0.2)

        await asyncio.gather(decide(), *(converse(session) for session in range(SESSIONS)))
    return sorted(took)[int(0.99 * len(took))], tokens[1] / max(1, tokens[0])


def rounds(fleet: LiveFleet) -> dict[bool, list[tuple[float, float]]]:
    """Return the rounds without and with a flood, which alternate."""
    found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for number in range(2 * ROUNDS):
        flooded = number % 2 == 1
        process = (
            subprocess.Popen([sys.executable, "-m", "bench.advisories", "--flood", fleet.url]) if flooded else None
        )
        try:
            found[flooded].append(asyncio.run(measured(fleet, f"round {number}")))
        finally:
            if process is not None:
                process.terminate()
                process.wait()
    return found


def main() -> int:
    """Measure, report, and return 1 where a target does not hold."""
    parser = command_line("advisories", __doc__)
    parser.add_argument("--flood", default="", help="send the flood to this gateway, and do nothing else")
    options = parser.parse_args()
    if options.flood:
        asyncio.run(flood(options.flood))
        return 0
    key = ApiKeyEntry(key_id="flood", sha256=hashlib.sha256(FLOOD_KEY.encode()).hexdigest(), tenant_id="flood")
    policy = RoutingPolicy(advisories="gated")
    with tempfile.TemporaryDirectory() as state, live_fleet(Path(state), policy, engines=2, more_keys=(key,)) as fleet:
        asyncio.run(measured(fleet, "warm-up"))
        found = rounds(fleet)
    quiet, loud = ([statistics.median(each) for each in zip(*found[flooded], strict=True)] for flooded in (False, True))
    figures = {"p99_s": quiet[0], "p99_flood_s": loud[0], "hit_share": quiet[1], "hit_share_flood": loud[1]}
    targets = {
        "p99_ratio": Target(value=loud[0] / quiet[0], op="<", target=2.0),
        "hit_share_lost": Target(value=quiet[1] - loud[1], op="<", target=0.02),
    }
    return 0 if write_report("advisories", figures, targets, options.json) else 1


if __name__ == "__main__":
    sys.exit(main())
