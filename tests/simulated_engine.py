"""Run a simulated engine on the test's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from simulator.engine_server.server import EngineServer, bind
from simulator.engine_server.settings import EngineSettings
from tests.patience import until


@asynccontextmanager
async def serving(settings: EngineSettings) -> AsyncIterator[EngineServer]:
    """Run an engine with these settings until the block ends."""
    server = EngineServer(settings)
    task = asyncio.create_task(server.serve(sockets=[bind(settings)]))
    await until(lambda: server.started)
    try:
        yield server
    finally:
        server.should_exit = True
        await task
