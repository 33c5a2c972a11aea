"""The CPU cost of a decision over HTTP, compared with the minimum for the same server.

`python -m bench.gateway.decision_api --json OUT` measures the CPU time per request of `POST /api/v1/route` (24 block
hashes, 32 engines, no waiting) and of uvicorn with a null ASGI app for the same request. Both run in separate
processes, in alternating rounds. CPU time is the kernel's for the whole server process, so other work on the machine
disturbs it little. Figures are medians over rounds.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import NamedTuple, cast

import uvloop
from typing_extensions import override

from bench.live.decision_api_server import API_KEY, ENGINES, HASHES, MODEL, hash_groups, shared_hashes
from bench.report import Target, command_line, write_report

CONNECTIONS = 32
BATCH = 64
"""Routed requests that are not complete at the end of a measured period: 2 per engine."""
BATCHES = 48
FIRST_PORT = 18390


class Round(NamedTuple):
    """CPU microseconds per request of both servers, and the seconds of each routed request."""

    null_us: float
    route_us: float
    took: list[float]


def cpu_s(pid: int) -> float:
    """Return a process's used CPU seconds from its CPU clock (Linux: (~pid << 3) | 2)."""
    return time.clock_gettime((~pid << 3) | 2)


class Connection(asyncio.Protocol):
    """One keep-alive connection that sends a batch's requests one after another."""

    def __init__(self) -> None:
        self._buffer = b""
        self._batch: Batch | None = None

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if self._batch is not None:
            self._batch.fail(ConnectionError("the server closed the connection"))

    @override
    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, separator, body = self._buffer.partition(b"\r\n\r\n")
        if not separator:
            return
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        batch = self._batch
        if len(body) < length or batch is None:
            return
        self._buffer = b""
        if not head.startswith(b"HTTP/1.1 200"):
            batch.fail(RuntimeError(f"the server answered {head[:40]!r} {body[:200]!r}"))
            return
        batch.took.append(time.perf_counter() - self._sent)
        batch.bodies.append(body)
        self.send(batch)

    def send(self, batch: Batch) -> None:
        """Send the batch's next request."""
        request = next(batch.requests, None)
        self._batch = batch if request is not None else None
        if request is None:
            batch.leave()
            return
        self._sent = time.perf_counter()
        self._transport.write(request)


class Batch:
    """Requests shared by several connections, and their answers."""

    def __init__(self, requests: Sequence[bytes], connections: int) -> None:
        self.requests = iter(requests)
        self.took: list[float] = []
        self.bodies: list[bytes] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._busy = connections

    def leave(self) -> None:
        """Record that a connection has no more requests to send."""
        self._busy -= 1
        if self._busy == 0 and not self.done.done():
            self.done.set_result(None)

    def fail(self, error: Exception) -> None:
        """End the batch with an error."""
        if not self.done.done():
            self.done.set_exception(error)


class Client:
    """Keep-alive connections to one server."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connections: list[Connection] = []

    async def connect(self) -> None:
        """Open the connections."""
        loop = asyncio.get_running_loop()
        for _ in range(CONNECTIONS):
            _, connection = await loop.create_connection(Connection, "127.0.0.1", self._port)
            self._connections.append(connection)

    async def drive(self, requests: Sequence[bytes]) -> Batch:
        """Send all requests and return their answers."""
        batch = Batch(requests, len(self._connections))
        for connection in self._connections:
            connection.send(batch)
        await batch.done
        return batch


def http_request(path: str, body: bytes) -> bytes:
    """Return a POST as bytes."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {API_KEY}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def route_requests(count: int, rng: Random) -> list[bytes]:
    """Return requests whose prompts share 6, 12 or 24 of their 24 blocks with others."""
    groups = hash_groups()
    made = []
    for _ in range(count):
        body = {
            "model": MODEL,
            "block_hashes": shared_hashes(groups, rng),
            "prompt_tokens": HASHES * 512,
            "wait": False,
        }
        made.append(http_request("/api/v1/route", json.dumps(body, separators=(",", ":")).encode()))
    return made


@contextmanager
def server(*arguments: str) -> Iterator[int]:
    """Run one of the servers in a separate process. Yields its pid."""
    process = subprocess.Popen([sys.executable, "-m", "bench.live.decision_api_server", *arguments])
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait(10)


async def connected(port: int) -> Client:
    """Wait until the server listens, and return a client."""
    for _ in range(200):
        client = Client(port)
        try:
            await client.connect()
        except OSError:
            await asyncio.sleep(0.05)
        else:
            return client
    raise RuntimeError(f"the server on port {port} does not listen")


async def healthy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer 200 to every request, as a healthy engine answers probes."""
    while await reader.readline():
        while (await reader.readline()).strip():
            pass
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
    writer.close()


async def cpu_us(pid: int, client: Client, requests: Sequence[bytes]) -> tuple[float, Batch]:
    """Return the server's CPU microseconds per request, and the answers."""
    before = cpu_s(pid)
    batch = await client.drive(requests)
    return (cpu_s(pid) - before) / len(requests) * 1e6, batch


async def complete(client: Client, batch: Batch) -> None:
    """Report the request of each decision of a batch as complete."""
    ids = [json.loads(body)["decision_id"] for body in batch.bodies]
    await client.drive([http_request(f"/api/v1/requests/{id_}/complete", b"{}") for id_ in ids])


async def one_round(null: tuple[int, Client], gateway: tuple[int, Client], rng: Random) -> Round:
    """Load both servers in turn. Routed requests are completed, unmeasured, before the next batch."""
    null_us: list[float] = []
    route_us: list[float] = []
    took: list[float] = []
    for _ in range(BATCHES):
        requests = route_requests(BATCH, rng)
        null_us.append((await cpu_us(*null, requests))[0])
        spent, batch = await cpu_us(*gateway, requests)
        route_us.append(spent)
        took += batch.took
        await complete(gateway[1], batch)
    return Round(statistics.mean(null_us), statistics.mean(route_us), took)


async def measure(rounds: int) -> dict[str, float]:
    """Return the figures. The first round is a warm-up."""
    rng = Random(7)
    health = await asyncio.start_server(healthy, "127.0.0.1", FIRST_PORT)
    null_port, gateway_port = FIRST_PORT + 1, FIRST_PORT + 2
    with (
        server("null", str(null_port)) as null_pid,
        server("gateway", str(gateway_port), f"http://127.0.0.1:{FIRST_PORT}") as gateway_pid,
    ):
        null, gateway = (null_pid, await connected(null_port)), (gateway_pid, await connected(gateway_port))
        done = [await one_round(null, gateway, rng) for _ in range(rounds + 1)][1:]
    health.close()
    latencies = sorted(seconds for item in done for seconds in item.took)
    return {
        "engines": ENGINES,
        "block_hashes": HASHES,
        "connections": CONNECTIONS,
        "requests": len(latencies),
        "null_cpu_us": round(statistics.median(item.null_us for item in done), 2),
        "route_cpu_us": round(statistics.median(item.route_us for item in done), 2),
        "ratio": round(statistics.median(item.route_us / item.null_us for item in done), 3),
        "route_p50_ms": round(latencies[len(latencies) // 2] * 1e3, 3),
        "route_p99_ms": round(latencies[len(latencies) * 99 // 100] * 1e3, 3),
    }


def main() -> None:
    """Measure and write the report."""
    parser = command_line("decision_api", __doc__)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        figures = runner.run(measure(arguments.rounds))
    targets = {"ratio": Target(value=figures["ratio"], op="<=", target=2.0)}
    write_report("decision_api", figures, targets, arguments.json)


if __name__ == "__main__":
    main()
