"""Runs work only while its client is connected."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from gateway.server.http.http_exchange import ClientGoneError, Exchange

Done = TypeVar("Done")


async def while_connected(
    exchange: Exchange, work: Coroutine[Any, Any, Done], undo: Callable[[Done], None] | None = None
) -> Done:
    """Return the result of `work`. If the client disconnects first, cancel it and raise ClientGoneError.

    `undo` receives a result that was ready too late for the client.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(exchange.disconnected())
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not gone.done():
            return await task
    finally:
        gone.cancel()
        if not task.done():
            task.cancel()
            # It may complete despite the cancellation; its result is then undone below.
            await asyncio.wait((task,))
    if not task.cancelled() and task.exception() is None and undo is not None:
        undo(task.result())
    raise ClientGoneError
