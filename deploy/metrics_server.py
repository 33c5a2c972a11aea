"""Counters as Prometheus text, served on loopback beside whatever counts them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from aiohttp import web


def lines(name: str, label: str, counts: Mapping[str, int]) -> str:
    """Return one counter with its values by label."""
    rows = (f'{name}{{{label}="{value}"}} {count}\n' for value, count in counts.items())
    return f"# TYPE {name} counter\n{''.join(rows)}"


@asynccontextmanager
async def serving(port: int, text: Callable[[], str]) -> AsyncIterator[None]:
    """Serve `/metrics` on loopback while the block runs; port 0: not at all."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=text())

    app = web.Application()
    app.router.add_get("/metrics", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        if port:
            await web.TCPSite(runner, "127.0.0.1", port).start()
        yield
    finally:
        await runner.cleanup()
