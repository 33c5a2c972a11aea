"""Background coroutines that restart after unexpected failures."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

logger = logging.getLogger(__name__)

_RESTART_S = 5.0


def start(what: str, run: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
    """Return a task that runs `run` until it is cancelled. After a failure it logs the error and runs `run` again."""
    return asyncio.create_task(_keep_running(what, run), name=what)


def every(
    what: str, interval_s: float, call: Callable[[], Awaitable[None] | None], *, at_once: bool = False
) -> asyncio.Task[None]:
    """Return a task that calls `call` every interval until it is cancelled. Failures are logged.

    `at_once`: the first call is made immediately.
    """

    async def run() -> None:
        if not at_once:
            await asyncio.sleep(interval_s)
        while True:
            called = call()
            if called is not None:
                await called
            await asyncio.sleep(interval_s)

    return start(what, run)


async def _keep_running(what: str, run: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            await run()
        except Exception:
            # The edge of a background task: without this, one unexpected failure would end it silently.
            logger.exception("%s failed; it restarts in %.0f s", what, _RESTART_S)
        await asyncio.sleep(_RESTART_S)
