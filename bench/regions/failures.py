"""Three regions through overload, partitions and a killed gateway: `python -m bench.regions.failures --json OUT`.

Every request must get a complete answer or an immediate error, with at most one hop. No request is sent to a region
that has been silent for 2 s. A killed gateway's engines serve again within 5 s, and its region serves again within 5 s
after the gateway is healthy.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp

from bench.live.live_fleet import wait_for
from bench.live.region_clients import RegionClients, outcome
from bench.live.region_fleet import RegionFleet, region_fleet
from bench.live.region_history import problems, seconds
from bench.report import Target, command_line, write_report

_LIMIT_S = 60.0


async def main() -> int:
    """Run the phases one after the other. Return 1 if a target is missed."""
    parser = command_line("regions", __doc__)
    parser.add_argument("--partition", type=float, default=30.0, metavar="S", help="length of the partition")
    parser.add_argument("--rate", type=float, default=20.0, help="requests per second to the loaded region")
    parser.add_argument("--logs", type=Path, default=None, metavar="DIR", help="keep the gateways' logs there")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        logs = options.logs or Path(folder)
        logs.mkdir(parents=True, exist_ok=True)
        figures, targets = await _measured(logs, options.partition, options.rate)
    return 0 if write_report("regions", figures, targets, options.json) else 1


@dataclass
class Moments:
    """Times of the injected faults and of their observed effects, in Unix seconds."""

    overload_s: float = 0.0
    cut_s: float = 0.0
    healed_s: float = 0.0
    again_s: float = 0.0
    killed_s: float = 0.0
    served_s: float = 0.0
    restarted_s: float = 0.0
    healthy_s: float = 0.0
    back_s: float = 0.0


async def _measured(folder: Path, partition_s: float, rate: float) -> tuple[dict[str, float], dict[str, Target]]:
    async with (
        region_fleet(folder) as fleet,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
    ):
        clients, moments = RegionClients(fleet, session, seed=1), Moments()
        sending = asyncio.create_task(clients.run())
        await asyncio.sleep(3.0)
        await _partition(fleet, clients, moments, partition_s, rate)
        await _death(fleet, clients, moments)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        await clients.finish(_LIMIT_S)
        return _result(list(fleet.events()), clients, moments)


async def _partition(
    fleet: RegionFleet, clients: RegionClients, moments: Moments, partition_s: float, rate: float
) -> None:
    """Overload us, isolate it, heal it, and cut one direction of one link."""
    clients.rates["us"] = rate
    moments.overload_s = time.time()
    await asyncio.sleep(12.0)
    fleet.isolate("us")
    moments.cut_s = time.time()
    clients.rates["us"] = 1.0
    await asyncio.sleep(partition_s)
    fleet.isolate("us", cut=False)
    moments.healed_s = since_s = time.time()
    clients.rates["us"] = rate
    moments.again_s = await _until(fleet, lambda event: _forwards(event, "us") and seconds(event) > since_s)
    fleet.cut("us", "eu")
    await asyncio.sleep(8.0)
    fleet.cut("us", "eu", cut=False)
    await asyncio.sleep(3.0)


async def _death(fleet: RegionFleet, clients: RegionClients, moments: Moments) -> None:
    """Kill the gateway of eu and start it again. During that time its clients use us, as DNS would direct them."""
    clients.rates["eu"] = 2.0
    await asyncio.sleep(5.0)
    fleet.kill_gateway("eu")
    moments.killed_s = killed_s = time.time()
    clients.via["eu"] = "us"
    moments.served_s = await _until(
        fleet, lambda event: _serves(event, "eu-", {"us", "asia"}) and seconds(event) > killed_s
    )
    await asyncio.sleep(3.0)
    moments.restarted_s = restarted_s = time.time()
    fleet.start_gateway("eu")
    await asyncio.to_thread(wait_for, f"{fleet.url('eu')}/ready")
    moments.healthy_s = time.time()
    clients.via["eu"] = "eu"
    moments.back_s = await _until(fleet, lambda event: _serves(event, "eu-", {"eu"}) and seconds(event) > restarted_s)
    await asyncio.sleep(3.0)


def _result(
    events: list[dict[str, Any]], clients: RegionClients, at: Moments
) -> tuple[dict[str, float], dict[str, Target]]:
    wrong = problems(events, {"eu": [at.killed_s]})
    for problem in wrong[:20]:
        print(problem, file=sys.stderr)
    cut_off = [
        event
        for event in events
        if event.get("event") == "forwarded"
        and "us" in (event["gateway"], event["destination"])
        and at.cut_s + 2.1 < seconds(event) < at.healed_s
    ]
    outcomes = Counter(outcome(request) for request in clients.requests)
    crossed = sum(_forwards(event, "us") and at.overload_s < seconds(event) < at.cut_s for event in events)
    sent = sum(request.region == "us" and at.overload_s < request.sent_s < at.cut_s for request in clients.requests)
    figures = {
        "requests": float(len(clients.requests)),
        **{f"outcome_{name}": float(count) for name, count in sorted(outcomes.items())},
        "forwarded_share_in_overload": crossed / max(1, sent),
        "forwards_resume_after_heal_s": at.again_s - at.healed_s,
        "taken_over_after_kill_s": _epoch_s(events, "taken_over", at.killed_s),
        "engines_ready_after_kill_s": _ready_s(events, {"us", "asia"}, at.killed_s),
        "healthy_after_start_s": at.healthy_s - at.restarted_s,
        "taken_back_after_start_s": _epoch_s(events, "taken_back", at.restarted_s),
        "engines_ready_after_start_s": _ready_s(events, {"eu"}, at.restarted_s),
    }
    targets = {
        "history_problems": Target(value=len(wrong), op="<=", target=0),
        "forwarded_in_overload": Target(value=crossed, op=">=", target=1),
        "sent_over_the_cut_after_2_s": Target(value=len(cut_off), op="<=", target=0),
        # A client whose gateway was killed gets an error from its connection; no client may be left without any answer.
        "lost_requests": Target(value=outcomes["silent"], op="<=", target=0),
        "engines_served_after_kill_s": Target(value=at.served_s - at.killed_s, op="<=", target=5.0),
        "handed_back_after_healthy_s": Target(value=at.back_s - at.healthy_s, op="<=", target=5.0),
    }
    return figures, targets


def _epoch_s(events: list[dict[str, Any]], how: str, since: float) -> float:
    """Return the time from `since` until eu's engines changed owners in this way."""
    changes = [
        seconds(event) - since
        for event in events
        if event.get("event") == "region_epoch" and event["how"] == how and event["region_name"] == "eu"
    ]
    return next((after_s for after_s in changes if after_s > 0), float("inf"))


def _ready_s(events: list[dict[str, Any]], gateways: set[str], since: float) -> float:
    """Return the time from `since` until one of these gateways first considered an engine of eu ready."""
    ready = [
        seconds(event) - since
        for event in events
        if event.get("event") == "breaker"
        and event["state"] == "closed"
        and event["gateway"] in gateways
        and event["engine"].startswith("eu-")
    ]
    return next((after_s for after_s in ready if after_s > 0), float("inf"))


def _forwards(event: dict[str, Any], region: str) -> bool:
    return event.get("event") == "forwarded" and event["gateway"] == region


def _serves(event: dict[str, Any], engines: str, gateways: set[str]) -> bool:
    return (
        event.get("event") == "dispatched"
        and event["gateway"] in gateways
        and str(event["engine_id"]).startswith(engines)
    )


async def _until(fleet: RegionFleet, matches: Callable[[dict[str, Any]], bool]) -> float:
    """Return when the first matching event was logged, inf on timeout."""
    deadline = time.monotonic() + _LIMIT_S
    while time.monotonic() < deadline:
        for event in await asyncio.to_thread(lambda: list(fleet.events())):
            if matches(event):
                return seconds(event)
        await asyncio.sleep(0.25)
    return float("inf")


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
