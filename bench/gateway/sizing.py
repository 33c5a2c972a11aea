"""CPU and memory of one gateway by the number of its engines: `python -m bench.gateway.sizing --json OUT`.

A gateway in a separate process answers `POST /api/v1/route` (24 block hashes) and the report that ends each request.
CPU time is the kernel's for the whole process, for both calls together, so other work on the machine disturbs it
little. Decisions per second are the rate that one core could sustain at that cost. Memory is the process's resident set
after the last request, with 200 known prefixes; an index that fills up adds to it.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from random import Random

import uvloop

from bench.gateway.decision_api import (
    BATCH,
    FIRST_PORT,
    Client,
    complete,
    connected,
    cpu_s,
    healthy,
    route_requests,
    server,
)
from bench.live.live_fleet import resident_bytes
from bench.report import command_line, write_report

SIZES = (8, 32, 128, 256)
BATCHES = 24
START_S = 120.0
LATE_S = 1.0


async def started(port: int) -> Client:
    """Wait until the server listens, and return a client. On a busy machine the start can take long."""
    until_s = time.monotonic() + START_S
    while True:
        try:
            return await connected(port)
        except RuntimeError:
            if time.monotonic() > until_s:
                raise


async def measure(engines: int, port: int) -> dict[str, float]:
    """Return the figures of a gateway with this many engines."""
    rng = Random(7)
    health = await asyncio.start_server(healthy, "127.0.0.1", port)
    with server("gateway", str(port + 1), f"http://127.0.0.1:{port}", str(engines)) as pid:
        client = await started(port + 1)
        costs: list[float] = []
        while len(costs) < BATCHES:
            before = cpu_s(pid)
            try:
                await complete(client, await client.drive(route_requests(BATCH, rng)))
            except RuntimeError:
                # On a busy machine the gateway may report that it is late; that batch does not count.
                await asyncio.sleep(LATE_S)
                client = await started(port + 1)
                continue
            costs.append((cpu_s(pid) - before) / BATCH)
        resident = resident_bytes(pid)
    health.close()
    # The first batches fill caches.
    cost_s = statistics.median(costs[BATCHES // 4 :])
    return {
        f"cpu_us_{engines}_engines": round(cost_s * 1e6, 1),
        f"decisions_per_s_and_core_{engines}_engines": round(1 / cost_s),
        f"mb_{engines}_engines": round(resident / 1e6, 1),
    }


def main() -> None:
    """Measure each size and write the report."""
    arguments = command_line("sizing", __doc__).parse_args()
    figures: dict[str, float] = {}
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for number, engines in enumerate(SIZES):
            figures |= runner.run(measure(engines, FIRST_PORT + 10 + 2 * number))
    figures["load_average"] = round(os.getloadavg()[1], 1)
    write_report("sizing", figures, {}, arguments.json)


if __name__ == "__main__":
    main()
