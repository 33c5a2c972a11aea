"""A real gateway and a prober over slow engines, for tests with a virtual clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import aiohttp

from gateway.base.settings import EngineLimits, GatewaySettings
from gateway.bus.bus import InProcessBus
from gateway.pools.engines.live_engine import LiveEngine
from gateway.pools.engines.prober import probe_engines
from routing.policy.policy_document import RoutingPolicy
from tests.gateway.served_gateway import KEY, MODEL, ServedGateway, served, snapshot
from tests.gateway.slow_engine import Run, SlowEngine


@dataclass
class Client:
    """One request and its outcome. Mutable: set when it ends."""

    seed: int
    body: dict[str, Any]
    status: int = 0
    text: bytes = b""

    @property
    def whole(self) -> bool:
        """Return whether it got its complete response."""
        return self.status == 200 and (not self.body["stream"] or self.text.endswith(b"data: [DONE]\n\n"))


def chat(
    seed: int, text: str = "x", *, stream: bool = True, start_s: float = 0.1, answer_s: float = 2.0, **fields: Any
) -> Client:
    """Return a request with these engine delays before and after the first token."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": text}], "stream": stream, "seed": seed}
    return Client(seed, {**body, "start_s": start_s, "answer_s": answer_s, **fields})


@dataclass
class Story:
    """A run and its observations. Mutable: recorded during the run."""

    engines: list[SlowEngine]
    gateway: ServedGateway
    session: aiohttp.ClientSession
    clients: list[Client] = field(default_factory=list)
    seen: list[tuple[float, dict[str, tuple[bool, bool, str]]]] = field(default_factory=list)
    """Each half second: of each engine whether it takes work, whether it is lost, and the cause."""

    def live(self, number: int) -> LiveEngine:
        engine: LiveEngine = self.gateway.pool.engines[f"engine-{number}"]
        return engine

    def runs(self, seed: int) -> list[tuple[SlowEngine, Run]]:
        """Return the engines on which a request was started, in order."""
        matches = [(engine, run) for engine in self.engines for run in engine.runs if run.seed == seed]
        return sorted(matches, key=lambda item: item[1].begun_s)

    async def watch(self) -> None:
        """Record the states of all engines until cancelled."""
        while True:
            await asyncio.sleep(0.5)
            state = {
                name: (self.gateway.pool.accepts(name), engine.lost, engine.breaker.cause)
                for name, engine in self.gateway.pool.engines.items()
            }
            self.seen.append((time.monotonic(), state))

    async def ask(self, client: Client) -> None:
        """Send a request and wait for its end."""
        headers = {"authorization": f"Bearer {KEY}"}
        url = self.gateway.url + "/v1/chat/completions"
        async with self.session.post(url, json=client.body, headers=headers) as answer:
            client.status = answer.status
            client.text = await answer.read()


@asynccontextmanager
async def story(
    rng: Random, engines: int, state_dir: Path, limits: EngineLimits, policy: RoutingPolicy
) -> AsyncIterator[Story]:
    """Run a gateway and a prober over this many engines."""
    async with AsyncExitStack() as stack:
        made = [await stack.enter_async_context(SlowEngine(Random(rng.random()))) for _ in range(engines)]
        urls, bus = [item.url for item in made], InProcessBus()
        settings = GatewaySettings(limits=limits, first_probe_s=6.0)
        pool: dict[str, Any] = {"policy": policy, "key_source": "approximate"}
        gateway = await stack.enter_async_context(served(urls, state_dir, gateway_settings=settings, bus=bus, **pool))
        targets, stop = snapshot(urls, **pool).engines, asyncio.Event()
        probing = asyncio.create_task(
            probe_engines(lambda: targets, bus, stop, light_interval_s=1.0, timeout_s=limits.probe_timeout_s)
        )
        session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None), connector=aiohttp.TCPConnector(limit=0)
        )
        fleet = Story(made, gateway, await stack.enter_async_context(session))
        # Two reads of 5 s each may take longer than the gateway waits at its start; until then an engine is starting.
        while not all(map(gateway.pool.accepts, gateway.pool.engines)):
            await asyncio.sleep(0.5)
        watching = asyncio.create_task(fleet.watch())
        try:
            yield fleet
        finally:
            watching.cancel()
            stop.set()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(watching, probing)
