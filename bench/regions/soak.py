"""Three regions under random faults: `python -m bench.regions.soak --seconds S --seed N --json OUT`.

Links between gateways are stalled one way or both, delayed, and reset; gateways are killed and restarted; all derived
from the seed. Afterwards the history of every request is checked (bench.live.region_history): one engine at a time, one
hop at most, one holder per epoch, none sent to a silent region. Exits with 1 if a check fails, or if a client got no
answer.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp

from bench.live.region_clients import RegionClients, outcome
from bench.live.region_fleet import REGIONS, RegionFleet, region_fleet
from bench.live.region_history import problems
from bench.report import Target, command_line, write_report

LONGEST_FAULT_S = 8.0
_LIMIT_S = 120.0


class Soak:
    """One run. Mutable: the times at which gateways were killed."""

    def __init__(self, fleet: RegionFleet, seed: int) -> None:
        self.ends: dict[str, list[float]] = {name: [] for name in REGIONS}
        self.faults = 0
        self._fleet = fleet
        self._rng = random.Random(seed)

    async def run(self, seconds: float) -> None:
        """Inject one fault after the other, and heal all of them at the end."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            await asyncio.sleep(self._rng.uniform(0.2, 2.0))
            fault = self._rng.choice((self._one_way, self._isolation, self._delay, self._reset, self._death))
            await fault(min(self._rng.uniform(0.5, LONGEST_FAULT_S), max(0.0, until - time.monotonic())))
            self.faults += 1

    async def _one_way(self, seconds: float) -> None:
        one, other = self._rng.sample(REGIONS, 2)
        self._fleet.cut(one, other)
        await asyncio.sleep(seconds)
        self._fleet.cut(one, other, cut=False)

    async def _isolation(self, seconds: float) -> None:
        region = self._rng.choice(REGIONS)
        self._fleet.isolate(region)
        await asyncio.sleep(seconds)
        self._fleet.isolate(region, cut=False)

    async def _delay(self, seconds: float) -> None:
        link = self._fleet.links[tuple(self._rng.sample(REGIONS, 2))]  # type: ignore[index]  # a sample of two
        usual_s = link.there.delay_s
        link.there.delay_s = self._rng.uniform(0.2, 1.0)
        await asyncio.sleep(seconds)
        link.there.delay_s = usual_s

    async def _reset(self, _seconds: float) -> None:
        self._fleet.links[tuple(self._rng.sample(REGIONS, 2))].reset()  # type: ignore[index]  # a sample of two

    async def _death(self, seconds: float) -> None:
        region = self._rng.choice(REGIONS)
        self._fleet.kill_gateway(region)
        self.ends[region].append(time.time())
        await asyncio.sleep(seconds)
        self._fleet.start_gateway(region)


async def soak(folder: Path, seconds: float, seed: int) -> tuple[list[str], dict[str, float]]:
    """Return a sentence for each violation, and the run's figures."""
    async with (
        region_fleet(folder) as fleet,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
    ):
        clients, run = RegionClients(fleet, session, seed), Soak(fleet, seed)
        # One region is overloaded, so that requests are forwarded.
        clients.rates[random.Random(seed).choice(REGIONS)] = 20.0
        sending = asyncio.create_task(clients.run())
        await run.run(seconds)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        await clients.finish(_LIMIT_S)
        events = list(fleet.events())
    wrong = problems(events, run.ends)
    wrong += [
        f"a request to {request.region} got no answer" for request in clients.requests if outcome(request) == "silent"
    ]
    forwarded = sum(event.get("event") == "forwarded" for event in events)
    outcomes = Counter(map(outcome, clients.requests))
    takeovers = sum(event.get("how") == "taken_over" for event in events)
    figures = {
        "requests": float(len(clients.requests)),
        "completed": float(outcomes["completed"]),
        **{f"outcome_{name}": float(count) for name, count in sorted(outcomes.items())},
        "forwarded": float(forwarded),
        "faults": float(run.faults),
        "deaths": float(sum(map(len, run.ends.values()))),
        "takeovers": float(takeovers),
    }
    return wrong, figures


def main() -> int:
    """Run once. Return 1 if a check failed."""
    parser = command_line("region_soak", __doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        wrong, figures = asyncio.run(soak(Path(folder), options.seconds, options.seed))
    for problem in wrong[:20]:
        print(problem, file=sys.stderr)
    targets = {
        "problems": Target(value=len(wrong), op="<=", target=0),
        "completed": Target(value=figures["completed"], op=">=", target=1),
    }
    return 0 if write_report("region_soak", figures, targets, options.json) else 1


if __name__ == "__main__":
    sys.exit(main())
