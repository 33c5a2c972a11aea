"""How clients that never finish their requests affect others: `python -m bench.gateway.slow_clients --json OUT`.

Decisions are requested over 32 connections, in rounds without and with 200 incomplete request heads and 40 incomplete
bodies, each sending a byte per second, on one server. The figure is the ratio of the decisions' 99th percentiles with
and without slow clients, median over rounds.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import uvloop

from bench.gateway.decision_api import BATCH, FIRST_PORT, Client, complete, connected, healthy, route_requests, server
from bench.report import Target, command_line, write_report

HALF_OPEN, SLOW_BODIES = 200, 40
BATCHES = 40
_HEAD = b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
_BODY = b"POST /api/v1/route HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n"


async def p99_s(client: Client, rng: Random) -> float:
    """Return the 99th percentile of the decisions' times. Each is completed, unmeasured, before the next."""
    took: list[float] = []
    for _ in range(BATCHES):
        batch = await client.drive(route_requests(BATCH, rng))
        took += batch.took
        await complete(client, batch)
    return statistics.quantiles(took, n=100)[98]


@asynccontextmanager
async def slow_clients(port: int) -> AsyncIterator[None]:
    """Keep the slow clients connected, reconnecting after a close."""
    starts = [_HEAD] * HALF_OPEN + [_BODY] * SLOW_BODIES
    tasks = [asyncio.create_task(_dribble(port, start)) for start in starts]
    await asyncio.sleep(1.0)
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _dribble(port: int, start: bytes) -> None:
    while True:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(start)
        try:
            while not writer.is_closing():
                await asyncio.sleep(1.0)
                writer.write(b"a")
                await writer.drain()
        except ConnectionError:
            continue
        finally:
            writer.close()


async def measure(rounds: int) -> dict[str, float]:
    """Return the figures. The first round is a warm-up."""
    rng, port = Random(7), FIRST_PORT + 2
    health = await asyncio.start_server(healthy, "127.0.0.1", FIRST_PORT)
    alone, beside = [], []
    with server("gateway", str(port), f"http://127.0.0.1:{FIRST_PORT}"):
        client = await connected(port)
        await p99_s(client, rng)
        for _ in range(rounds):
            alone.append(await p99_s(client, rng))
            async with slow_clients(port):
                beside.append(await p99_s(client, rng))
    health.close()
    return {
        "half_open": HALF_OPEN,
        "slow_bodies": SLOW_BODIES,
        "rounds": rounds,
        "alone_p99_ms": round(statistics.median(alone) * 1e3, 3),
        "beside_p99_ms": round(statistics.median(beside) * 1e3, 3),
        "p99_ratio": round(statistics.median(b / a for a, b in zip(alone, beside, strict=True)), 3),
    }


def main() -> None:
    """Measure and write the report."""
    parser = command_line("slow_clients", __doc__)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        figures = runner.run(measure(arguments.rounds))
    targets = {"p99_ratio": Target(value=figures["p99_ratio"], op="<=", target=1.5)}
    write_report("slow_clients", figures, targets, arguments.json)


if __name__ == "__main__":
    main()
