"""CPU cost per request that a pool's owner serves for another gateway, and the pool's maximum rate.

`python -m bench.gateway.owner --json OUT`. Two gateways in separate processes share one pool over a local bus and a
real link. The gateway that does not own it sends requests as fast as they are answered; the owner measures the CPU time
of its whole process. Engines only answer health checks: no request is relayed.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import multiprocessing.connection
import statistics
import sys
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import Any

import uvloop
from aiohttp import web

from bench.report import Target, command_line, write_report
from gateway.base.peer_settings import PeerSettings
from gateway.base.settings import GatewaySettings
from gateway.bus.follower_bus import FollowerBus
from gateway.bus.redis_bus import RedisBus
from gateway.contracts.snapshot import EngineEntry, PoolEntry, Snapshot, encode_snapshot
from gateway.gateway import SNAPSHOT_TOPIC, Gateway
from gateway.pools.pool.live_pool import LivePool
from kvstore.keys.keyring import Keyring
from routing.chain import owner_decider, ownership
from routing.chain.ownership import ASKS, OWNER
from routing.policy.policy_document import RoutingPolicy
from routing.values.decision import Dispatched
from routing.values.inference_request import InferenceRequest
from routing.values.observation import Completed, FirstToken
from tests.private_redis import private_bus

KEYRING = Keyring.of(b"a secret for this bench only")
ENGINES, BLOCKS, PREFIXES, BLOCK_TOKENS = 8, 64, 256, 512
ASKS_AT_ONCE = 64
ALONE_REQUESTS = 300
PATIENCE_S = 60.0


def main() -> int:
    """Measure and report. Return 0 if an owner answers at least 2,000 requests per second on one core."""
    parser = command_line("owner", __doc__)
    parser.add_argument("--requests", type=int, default=20_000)
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as directory, private_bus() as server:
        ends, children = [], []
        for name in ("a", "b"):
            ours, theirs = context.Pipe()
            child = context.Process(target=_gateway, args=(name, directory, server.url, options.requests, theirs))
            child.start()
            ends.append(ours)
            children.append(child)
        roles = [end.recv() for end in ends]
        owner, asker = ends[roles.index(OWNER)], ends[roles.index(ASKS)]
        owner.send("measure")
        owner.recv()
        asker.send("ask")
        asked = asker.recv()
        owner.send("asked")
        owned = owner.recv()
        for end in ends:
            end.send("end")
        for child in children:
            child.join(PATIENCE_S)
    per_answer_us = 1e6 * owned["cpu_s"] / asked["requests"]
    figures = {
        "requests": asked["requests"],
        "answers_per_s": asked["requests"] / asked["wall_s"],
        "owner_cpu_us_per_answer": per_answer_us,
        "asker_cpu_us_per_request": 1e6 * asked["cpu_s"] / asked["requests"],
        "own_decision_cpu_us": owned["own_us"],
        "ceiling_requests_per_s": 1e6 / per_answer_us,
        "one_at_a_time_p50_us": asked["p50_us"],
        "one_at_a_time_p99_us": asked["p99_us"],
    }
    target = Target(value=figures["ceiling_requests_per_s"], op=">=", target=2000.0)
    return 0 if write_report("owner", figures, {"ceiling_requests_per_s": target}, options.json) else 1


def _gateway(name: str, directory: str, url: str, requests: int, parent: multiprocessing.connection.Connection) -> None:
    # The figure is CPU time; on a busy machine a late owner still answers.
    owner_decider.ANSWER_S = ownership.SILENT_S = PATIENCE_S
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(name, Path(directory), url, requests, parent))


async def _serve(
    name: str, directory: Path, url: str, requests: int, parent: multiprocessing.connection.Connection
) -> None:
    runner, port = await _engines()
    bus = RedisBus(url, KEYRING)
    if name == "a":
        bus.publish(SNAPSHOT_TOPIC, encode_snapshot(_snapshot(port)))
    settings = GatewaySettings(peers=PeerSettings(name=name))
    gateway = Gateway(FollowerBus(bus, name), keyring=KEYRING, state_dir=directory / name, settings=settings)
    await gateway.start()
    while not _role(gateway):  # noqa: ASYNC110  # roles settle in a background task
        await asyncio.sleep(0.02)
    await asyncio.sleep(1.0)
    parent.send(_role(gateway))
    pool = gateway.pools["pool"]
    if _role(gateway) == OWNER:
        await _next_message(parent)
        began_s = time.process_time()
        parent.send("go")
        await _next_message(parent)
        cpu_s = time.process_time() - began_s
        parent.send({"cpu_s": cpu_s, "own_us": _own_decisions(gateway, pool)})
    else:
        await _next_message(parent)
        parent.send(await _ask(gateway, pool, requests))
    await _next_message(parent)
    await gateway.stop()
    await runner.cleanup()
    bus.close()


def _role(gateway: Gateway) -> str:
    owners = gateway.peering.owners
    shared = owners.shared.get("pool") if owners is not None else None
    role = shared.ownership.role if shared is not None else ""
    return role if role in (OWNER, ASKS) else ""


async def _next_message(parent: multiprocessing.connection.Connection) -> Any:
    """Return the parent's next message without blocking the loop."""
    while not parent.poll():  # noqa: ASYNC110  # a pipe of multiprocessing has no event
        await asyncio.sleep(0.01)
    return parent.recv()


def _request(gateway: Gateway, number: int) -> InferenceRequest:
    prefix = number % PREFIXES
    keys = tuple((prefix << 32) + block + (1 << 60) for block in range(BLOCKS))
    tokens = BLOCKS * BLOCK_TOKENS
    return InferenceRequest(gateway.new_id(), keys, tokens, BLOCK_TOKENS, time.monotonic(), 3600.0, 128)


def _own_decisions(gateway: Gateway, pool: LivePool) -> float:
    """Return the CPU time of a decision and its end without any peer, in microseconds."""
    # The first pass warms caches up.
    for measured in (False, True):
        began_s = time.process_time()
        for number in range(ALONE_REQUESTS * 10):
            request = _request(gateway, number)
            pool.driver.chain.place(request, time.monotonic(), hold=False)
            pool.observe(FirstToken(request.request_id))
            pool.observe(Completed(request.request_id))
        if measured:
            return 1e6 * (time.process_time() - began_s) / (ALONE_REQUESTS * 10)
    return 0.0


async def _ask(gateway: Gateway, pool: LivePool, requests: int) -> dict[str, float]:
    """Send requests one by one, then many at once. Return the cost of the latter, and the time of a single answer."""
    waits_us = []
    for number in range(ALONE_REQUESTS):
        began = time.perf_counter()
        await _one(gateway, pool, number)
        waits_us.append(1e6 * (time.perf_counter() - began))
    numbers = count()

    async def asking() -> None:
        while (number := next(numbers)) < requests:
            await _one(gateway, pool, number)

    cpu_s, wall_s = time.process_time(), time.perf_counter()
    await asyncio.gather(*(asking() for _ in range(ASKS_AT_ONCE)))
    cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s
    cuts = statistics.quantiles(waits_us, n=100)
    asked = gateway.metrics.owner_asks.value("pool", "answered")
    # A request that its own gateway decided would make the owner seem cheaper.
    if asked != requests + ALONE_REQUESTS:
        raise RuntimeError(f"the owner answered {asked:.0f} of {requests + ALONE_REQUESTS} requests; measure again")
    return {"requests": asked, "cpu_s": cpu_s, "wall_s": wall_s, "p50_us": cuts[49], "p99_us": cuts[98]}


async def _one(gateway: Gateway, pool: LivePool, number: int) -> None:
    request = _request(gateway, number)
    outcome = await pool.decide(request, hold=True)
    if not isinstance(outcome, Dispatched):
        raise RuntimeError(f"request {number} was not dispatched: {outcome}")
    pool.observe(FirstToken(request.request_id))
    pool.observe(Completed(request.request_id))


def _snapshot(port: int) -> Snapshot:
    pool = PoolEntry(
        pool_id="pool",
        name="pool",
        region="here",
        served_model="m",
        key_source="approximate",
        policy=RoutingPolicy(prefill_window_tokens=1_000_000, max_wait_s=3600.0),
    )
    engines = tuple(
        EngineEntry(engine_id=f"e{number}", name=f"e{number}", pool_id="pool", url=f"http://127.0.0.1:{port}/{number}")
        for number in range(ENGINES)
    )
    return Snapshot(version=1, published_at=time.time(), pools=(pool,), engines=engines)


async def _engines() -> tuple[web.AppRunner, int]:
    """Serve the health of all engines; return the server and its port."""
    app = web.Application()
    app.router.add_get("/{path:.*}", _healthy)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    address: tuple[str, int] = runner.addresses[0]
    return runner, address[1]


async def _healthy(_request: web.Request) -> web.Response:
    return web.Response(text="")


if __name__ == "__main__":
    sys.exit(main())
