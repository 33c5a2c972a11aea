"""Real simulated engines in separate processes are killed, stopped and restarted under a live gateway."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from bench.live.loopback_ports import free_ports
from gateway.base.settings import GatewaySettings
from gateway.contracts.snapshot import EngineEntry
from gateway.pools.engines.prober import probe_engines
from kvstore.keys.block_keys import token_block_keys
from routing.values.decision import Dispatched
from tests.gateway.live_gateway import LiveGateway, engine_entry, live_gateway, request, snapshot
from tests.patience import PATIENCE_S, until

pytestmark = pytest.mark.processes

BLOCK = 16
PROMPT = "All engines are equal, but some hold the prefix already. " * 20


class EngineProcess:
    """One simulated engine server on fixed ports."""

    def __init__(self, engine_id: str) -> None:
        self.engine_id = engine_id
        self.port, self.events, self.replay = free_ports(3)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def entry(self) -> EngineEntry:
        """Return its line in the topology."""
        return engine_entry(
            self.engine_id,
            f"http://127.0.0.1:{self.port}",
            kv_events_endpoint=f"tcp://127.0.0.1:{self.events}",
            kv_replay_endpoint=f"tcp://127.0.0.1:{self.replay}",
        )

    def start(self) -> None:
        """Start it on the same ports each time."""
        options = {
            "--port": self.port,
            "--served-model-name": "m",
            "--block-size": BLOCK,
            "--kv-events-port": self.events,
            "--kv-replay-port": self.replay,
            "--time-scale": 20,
            "--parent-pid": os.getpid(),
        }
        arguments = [str(part) for pair in options.items() for part in pair]
        self.process = subprocess.Popen([sys.executable, "-m", "simulator.engine_server", *arguments])

    def send(self, signal_number: int) -> None:
        """Send it a signal; wait for its end after SIGKILL."""
        assert self.process is not None
        self.process.send_signal(signal_number)
        if signal_number == signal.SIGKILL:
            self.process.wait(10)

    def end(self) -> None:
        """End it permanently."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)


@pytest.fixture
def engines() -> Iterator[list[EngineProcess]]:
    running: list[EngineProcess] = []
    try:
        for name in ("a", "b"):
            engine = EngineProcess(name)
            engine.start()
            wait_for_port(engine.port)
            running.append(engine)
        yield running
    finally:
        for engine in running:
            engine.end()


def wait_for_port(port: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError(f"no engine on port {port}")


@asynccontextmanager
async def probed_gateway(tmp_path: Path, engines: list[EngineProcess]) -> AsyncIterator[LiveGateway]:
    """Run a gateway with default settings and a separate prober, as in production."""
    entries = [engine.entry for engine in engines]
    first = snapshot(entries, block_tokens=BLOCK)
    async with live_gateway(tmp_path, first, GatewaySettings()) as live:
        stop = asyncio.Event()
        prober = asyncio.create_task(probe_engines(lambda: entries, live.bus, stop))
        try:
            yield live
        finally:
            stop.set()
            await prober


async def prompt_keys(live: LiveGateway, engine_id: str) -> tuple[int, ...]:
    tokens = await live.engine(engine_id).adapter.tokenize(PROMPT)
    return token_block_keys(live.pool.seed(""), tokens, BLOCK)


async def complete(engine: EngineProcess) -> None:
    """Have the engine complete the prompt, so that its cache holds it."""
    async with aiohttp.ClientSession() as session:
        body = {"model": "m", "prompt": PROMPT, "max_tokens": 2}
        async with session.post(f"http://127.0.0.1:{engine.port}/v1/completions", json=body) as response:
            assert response.status == 200, await response.text()


def held(live: LiveGateway, engine_id: str, keys: tuple[int, ...]) -> int:
    router = live.pool.router
    target = router.fleet.target_of(engine_id)
    assert target is not None
    return sum(router.index.targets_of(key, 0) >> target & 1 for key in keys)


async def test_a_gateway_learns_cached_blocks_of_real_engines_and_routes_by_them(
    tmp_path: Path, engines: list[EngineProcess]
) -> None:
    await complete(engines[1])
    async with probed_gateway(tmp_path, engines) as live:
        keys = await prompt_keys(live, "b")
        assert len(keys) > 5
        await until(lambda: held(live, "b", keys) == len(keys))
        assert held(live, "a", keys) == 0
        await until(lambda: {engine.index_trust for engine in live.sample().engines} == {"exact"})
        outcome = await live.pool.decide(request("r", keys, len(keys) * BLOCK + 1), hold=True)
        assert isinstance(outcome, Dispatched)
        assert outcome.decision.engine_id == "b"
        await until(lambda: live.shown("b").kv_usage is not None)


async def test_a_killed_engine_is_lost_with_a_reason_and_returns_empty(
    tmp_path: Path, engines: list[EngineProcess]
) -> None:
    await complete(engines[0])
    async with probed_gateway(tmp_path, engines) as live:
        keys = await prompt_keys(live, "a")
        await until(lambda: held(live, "a", keys) == len(keys))
        await until(lambda: live.shown("a").report_age_s is not None)
        engines[0].send(signal.SIGKILL)
        await until(lambda: live.shown("a").state == "lost")
        assert live.shown("a").reason
        assert live.shown("b").state == "serving"
        for number in range(4):
            outcome = await live.pool.decide(request(f"r{number}", keys, 500), hold=False)
            assert isinstance(outcome, Dispatched)
            assert outcome.decision.engine_id == "b"
        engines[0].start()
        await until(lambda: live.engine("a").breaker.accepts)
        assert live.engine("a").incarnation == 2
        assert held(live, "a", keys) == 0
        await until(lambda: live.shown("a").state == "serving")
        await until(lambda: live.shown("a").index_trust == "exact")
        await asyncio.sleep(2.5)
        assert live.engine("a").incarnation == 2, "a restart is counted once, by whichever part detects it first"
        await complete(engines[0])
        await until(lambda: held(live, "a", keys) == len(keys))


async def test_a_hanging_engine_is_ejected_and_returns(tmp_path: Path, engines: list[EngineProcess]) -> None:
    async with probed_gateway(tmp_path, engines) as live:
        await until(lambda: live.shown("a").report_age_s is not None)
        engines[0].send(signal.SIGSTOP)
        try:
            await until(lambda: not live.engine("a").breaker.accepts)
            assert "timed out" in live.engine("a").breaker.reason
        finally:
            engines[0].send(signal.SIGCONT)
        await until(lambda: live.engine("a").breaker.accepts)


async def test_a_restarted_gateway_relearns_warm_caches(tmp_path: Path, engines: list[EngineProcess]) -> None:
    async with probed_gateway(tmp_path, engines) as live:
        await complete(engines[0])
        keys = await prompt_keys(live, "a")
        await until(lambda: held(live, "a", keys) == len(keys))
    async with probed_gateway(tmp_path, engines) as live:
        await until(lambda: held(live, "a", keys) == len(keys))
