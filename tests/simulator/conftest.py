"""A simulated engine in the test's event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

import aiohttp
import pytest

from bench.live.loopback_ports import free_port
from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_server.server import EngineServer
from simulator.engine_server.settings import EngineSettings
from tests.simulated_engine import serving


@dataclass(frozen=True, slots=True)
class RunningEngine:
    """A running engine, and a client session for it."""

    url: str
    settings: EngineSettings
    server: EngineServer
    http: aiohttp.ClientSession


StartEngine = Callable[..., Awaitable[RunningEngine]]


@pytest.fixture
async def start_engine() -> AsyncIterator[StartEngine]:
    """Start engines with fields of EngineSettings; they stop with the test."""

    async def start(**fields: object) -> RunningEngine:
        defaults = {"port": free_port(), "served_model": "demo", "seed": b"test", "time_scale": 20.0}
        settings = EngineSettings(**{**defaults, **fields})  # type: ignore[arg-type]
        server = await stack.enter_async_context(serving(settings))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        return RunningEngine(f"http://127.0.0.1:{settings.port}", settings, server, session)

    async with AsyncExitStack() as stack:
        yield start


@pytest.fixture
async def engine(start_engine: StartEngine) -> RunningEngine:
    """Run one engine with small blocks, twenty times faster than real time."""
    return await start_engine(profile=EngineProfile(block_tokens=16, num_blocks=64, recompute_last_block=True))
