"""Serves a process's counters as Prometheus text on loopback."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from aiohttp import web
from typing_extensions import override

MAX_CONNECTIONS = 16
HEAD_S = 5.0
"""Timeout in seconds for reading a request's head and for an idle connection."""
_logger = logging.getLogger("headway.metrics")
_logger.setLevel(logging.CRITICAL)  # aiohttp logs a traceback for each malformed request


def lines(name: str, label: str, counts: Mapping[str, int]) -> str:
    """Return one counter as Prometheus text, with one line per label value."""
    rows = (f'{name}{{{label}="{value}"}} {count}\n' for value, count in counts.items())
    return f"# TYPE {name} counter\n{''.join(rows)}"


@asynccontextmanager
async def serving(port: int, text: Callable[[], str]) -> AsyncIterator[None]:
    """Serve `/metrics` on loopback while the block runs; port 0 disables it."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=text())

    app = web.Application()
    app.router.add_get("/metrics", answer)
    runner = web.AppRunner(app, access_log=None, logger=_logger, keepalive_timeout=HEAD_S, lingering_time=HEAD_S)
    await runner.setup()

    def accept() -> asyncio.Protocol:
        server = runner.server
        return server() if server is not None and len(server.connections) < MAX_CONNECTIONS else _Full()

    listener = None
    try:
        if port:
            listener = await asyncio.get_running_loop().create_server(accept, "127.0.0.1", port, backlog=16)
        yield
    finally:
        if listener is not None:
            listener.close()
        await runner.cleanup()


class _Full(asyncio.Protocol):
    """Closes a connection that exceeds the limit."""

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
