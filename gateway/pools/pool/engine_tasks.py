"""Tasks that run for each engine of a pool: its health probe and its event reader."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from gateway.base import background


class EngineTasks:
    """Tasks by engine, the probe first. Mutable: the running and the cancelled tasks."""

    def __init__(self) -> None:
        self._of: dict[str, list[asyncio.Task[None]]] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def start(self, engine_id: str, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Start one more task for the engine."""
        self._of.setdefault(engine_id, []).append(background.start(name, work))

    def end_readers(self, engine_id: str) -> None:
        """Cancel all tasks of the engine except the first."""
        tasks = self._of[engine_id]
        while len(tasks) > 1:
            self._end(tasks.pop())

    def end(self, engine_id: str) -> None:
        """Cancel all tasks of the engine."""
        for task in self._of.pop(engine_id, []):
            self._end(task)

    async def ended(self) -> None:
        """Return when all cancelled tasks have ended."""
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _end(self, task: asyncio.Task[None]) -> None:
        task.cancel()
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
