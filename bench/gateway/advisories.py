"""A flood of advisories during decisions: `python -m bench.gateway.advisories --json OUT`.

One tenant has conversations and requests decisions. Another one sends ten times the advisories that its API key allows,
in a separate process, for its own sessions. Rounds with and without the flood alternate in pairs, on one fleet of
simulated engines without node managers, and all conversations have the same number of turns. Each round yields the p99
of the decisions at the caller, with and without the wait for an engine, and the cached share of prompt tokens. The
report contains the medians over pairs of the ratios of p99s and of the decrease of the share, and the number of
advisories sent relative to the limit.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

import aiohttp

from bench.live.live_fleet import MODEL, LiveFleet, live_fleet
from bench.report import Target, command_line, write_report
from gateway.contracts.advisory import SHED
from gateway.contracts.snapshot import ApiKeyEntry
from gateway.requests.advisories.source_limits import PER_S
from routing.policy.policy_document import RoutingPolicy

FLOOD_KEY = "hw_key_of_a_flood_on_loopback"
OPERATOR_KEY = "hw_key_of_an_operator_on_loopback"
"""The measuring tenant's key: if tenants share caches, only operators' keys receive hit counts."""
FLOOD_PER_S = 10 * PER_S
PAIRS = 7
TURNS = 30
DECISIONS_PER_S = 40.0
SESSIONS = 8
_AT_ONCE = 32
_STEADY = 200
"""Number of rejected advisories after which the flood counts as steady."""
_START_S = 60.0
_SHED = re.compile(rf'^headway_advisories_total\{{[^}}]*outcome="{SHED}"[^}}]*\}} (\S+)$', re.MULTILINE)


class Round(NamedTuple):
    """The measuring tenant's figures, and the number of advisories rejected per second."""

    p99_s: float
    unqueued_p99_s: float
    """Without the time in the pool's queue, which a flood that uses no engine does not change."""
    hit_share: float
    shed_per_s: float


async def flood(url: str) -> None:
    """Send advisories at ten times the limit, evenly spaced, until this process is terminated."""
    headers = {"authorization": f"Bearer {FLOOD_KEY}"}
    async with aiohttp.ClientSession(headers=headers) as client:
        for session in range(SESSIONS):
            body = {"model": MODEL, "prompt": f"flood {session} " * 600, "session_id": f"f-{session}", "max_tokens": 1}
            # An advisory needs a session with an earlier request.
            await (await client.post(f"{url}/v1/completions", json=body)).read()
    host, _, port = url.removeprefix("http://").partition(":")
    began, number = time.monotonic(), 0

    async def sender() -> None:
        # Bytes made in advance: the flood's cost to its own process is no part of its cost to the gateway.
        nonlocal number
        reader, writer = await asyncio.open_connection(host, int(port))
        while True:
            number += 1
            await asyncio.sleep(began + number / FLOOD_PER_S - time.monotonic())
            writer.write(_request(host, number % SESSIONS))
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]))

    await asyncio.gather(*(sender() for _ in range(_AT_ONCE)))


def _request(host: str, session: int) -> bytes:
    """Return the bytes of one advisory request."""
    body = f'{{"session_id": "f-{session}"}}'
    lines = (
        "POST /api/v1/advisories HTTP/1.1",
        f"Host: {host}",
        f"Authorization: Bearer {FLOOD_KEY}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "",
        body,
    )
    return "\r\n".join(lines).encode()


async def measured(fleet: LiveFleet, name: str) -> tuple[float, float, float]:
    """Return the p99s of decisions in seconds, and the cached share of prompt tokens, over one round."""
    headers, tokens = {"authorization": f"Bearer {OPERATOR_KEY}"}, [0, 0]
    took, unqueued = list[float](), list[float]()
    talking = SESSIONS
    async with aiohttp.ClientSession(headers=headers) as client:

        async def decide() -> None:
            number = 0
            while talking:
                number += 1
                began = time.monotonic()
                body = {"model": MODEL, "prompt": f"{name} decision {number} " * 100}
                async with client.post(f"{fleet.url}/api/v1/route", json=body) as answer:
                    made = await answer.json()
                took.append(time.monotonic() - began)
                unqueued.append(took[-1] - made["queued_s"])
                await (await client.post(f"{fleet.url}/api/v1/requests/{made['decision_id']}/complete", json={})).read()
                await asyncio.sleep(max(0.0, began + 1 / DECISIONS_PER_S - time.monotonic()))

        async def converse(session: int) -> None:
            nonlocal talking
            prompt = f"{name} session {session} " * 300
            for _ in range(TURNS):
                body = {"model": MODEL, "prompt": prompt, "session_id": f"{name}-{session}", "max_tokens": 4}
                async with client.post(f"{fleet.url}/v1/completions", json=body) as answer:
                    usage = (await answer.json())["usage"]
                tokens[0] += int(usage["prompt_tokens"])
                tokens[1] += int(usage["prompt_tokens_details"]["cached_tokens"])
                prompt += "and another turn of it " * 40
                await asyncio.sleep(0.2)
            talking -= 1

        await asyncio.gather(decide(), *(converse(session) for session in range(SESSIONS)))
    return _p99(took), _p99(unqueued), tokens[1] / tokens[0]


def _p99(seconds: list[float]) -> float:
    return sorted(seconds)[int(0.99 * len(seconds))]


def shed(fleet: LiveFleet) -> float:
    """Return the number of advisories that the gateway has rejected."""
    with urlopen(f"{fleet.url}/metrics", timeout=60) as answer:  # noqa: S310 - our own loopback address
        return sum(map(float, _SHED.findall(answer.read().decode())))


@contextmanager
def flooded(fleet: LiveFleet) -> Iterator[None]:
    """Keep a steady flood during the context."""
    process = subprocess.Popen([sys.executable, "-m", "bench.gateway.advisories", "--flood", fleet.url])
    try:
        before, until_s = shed(fleet), time.monotonic() + _START_S
        while shed(fleet) - before < _STEADY:
            if time.monotonic() > until_s:
                raise TimeoutError("the flood is not steady")
            time.sleep(0.2)
        yield
    finally:
        process.terminate()
        process.wait()


def one_round(fleet: LiveFleet, name: str) -> Round:
    """Measure one round."""
    before, began = shed(fleet), time.monotonic()
    return Round(*asyncio.run(measured(fleet, name)), (shed(fleet) - before) / (time.monotonic() - began))


def pairs(fleet: LiveFleet) -> list[tuple[Round, Round]]:
    """Return rounds without and with a flood, in pairs of alternating order."""
    rounds = []
    for number in range(PAIRS):
        both: dict[bool, Round] = {}
        # The order alternates, so that slow changes of the machine favor neither.
        for floods in (number % 2 == 1, number % 2 == 0):
            if floods:
                with flooded(fleet):
                    both[floods] = one_round(fleet, f"round {number} loud")
            else:
                both[floods] = one_round(fleet, f"round {number} quiet")
        print(f"quiet {both[False]}, flooded {both[True]}", flush=True)
        rounds.append((both[False], both[True]))
    return rounds


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def main() -> int:
    """Measure, report, and return 1 if a target does not hold."""
    parser = command_line("advisories", __doc__)
    parser.add_argument("--flood", default="", help="only send the flood to this gateway")
    options = parser.parse_args()
    if options.flood:
        asyncio.run(flood(options.flood))
        return 0
    keys = (
        ApiKeyEntry(key_id="flood", sha256=_sha256(FLOOD_KEY), tenant_id="flood"),
        ApiKeyEntry(
            key_id="operator", sha256=_sha256(OPERATOR_KEY), tenant_id="tenant", scopes=("infer", "route", "manage")
        ),
    )
    policy = RoutingPolicy(advisories="gated")
    with tempfile.TemporaryDirectory() as state, live_fleet(Path(state), policy, engines=2, more_keys=keys) as fleet:
        if not asyncio.run(measured(fleet, "warm-up"))[-1]:
            raise RuntimeError("no prompt token was cached: there is nothing to lose")
        rounds = pairs(fleet)
    quiet, loud = zip(*rounds, strict=True)
    ratios = [other.p99_s / one.p99_s for one, other in rounds]
    figures = {
        "p99_s": statistics.median(item.p99_s for item in quiet),
        "p99_flood_s": statistics.median(item.p99_s for item in loud),
        "p99_ratio_least": min(ratios),
        "p99_ratio_most": max(ratios),
        "unqueued_p99_s": statistics.median(item.unqueued_p99_s for item in quiet),
        "unqueued_p99_flood_s": statistics.median(item.unqueued_p99_s for item in loud),
        "hit_share": statistics.median(item.hit_share for item in quiet),
        "hit_share_flood": statistics.median(item.hit_share for item in loud),
        "shed_per_s": statistics.median(item.shed_per_s for item in loud),
    }
    targets = {
        "p99_ratio": Target(value=statistics.median(ratios), op="<", target=2.0),
        "unqueued_p99_ratio": Target(
            value=statistics.median(other.unqueued_p99_s / one.unqueued_p99_s for one, other in rounds),
            op="<",
            target=2.0,
        ),
        "hit_share_lost": Target(
            value=statistics.median(one.hit_share - other.hit_share for one, other in rounds), op="<", target=0.02
        ),
        # The gateway accepts at the limit and rejects everything beyond it.
        "flood_over_limit": Target(value=1 + figures["shed_per_s"] / PER_S, op=">=", target=9.0),
    }
    return 0 if write_report("advisories", figures, targets, options.json) else 1


if __name__ == "__main__":
    sys.exit(main())
