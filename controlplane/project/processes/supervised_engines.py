"""Aligns engine processes with the topology: one process per supervised engine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence

from django.db import DatabaseError

from controlplane.project.processes.child_process import ChildSpec
from controlplane.project.processes.supervisor import Supervisor
from gateway.bus.bus import Bus

logger = logging.getLogger(__name__)

POLL_S = 2.0
"""Maximum interval between reads of the topology. A new snapshot triggers a read immediately."""


class SupervisedEngines:
    """Follows the topology. Mutable state: the names of the supervised engines."""

    def __init__(self, supervisor: Supervisor, read: Callable[[], Sequence[ChildSpec]]) -> None:
        """Store the parameters.

        `read` returns the wanted children from the database, and is called in a separate thread.
        """
        self._supervisor = supervisor
        self._read = read
        self._mine: set[str] = set()

    async def run(self, bus: Bus, topic: str) -> None:
        """Align processes until cancelled. Values of `topic` trigger an immediate read."""
        loop, woken = asyncio.get_running_loop(), asyncio.Event()
        unsubscribe = bus.subscribe(topic, lambda *_: loop.call_soon_threadsafe(woken.set))
        try:
            while True:
                # Before the read: a snapshot that arrives during it triggers another one.
                woken.clear()
                await self.follow()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(POLL_S):
                        await woken.wait()
        finally:
            unsubscribe()

    async def follow(self) -> None:
        """Align the processes once. They stay unchanged if the database is unavailable."""
        try:
            specs = await asyncio.to_thread(self._read)
        except DatabaseError as error:
            logger.warning("the topology cannot be read; engines stay as they are", extra={"error": str(error)})
            return
        # Old and new ones until they are aligned: those that left the topology must be ended, too.
        self._mine |= {spec.name for spec in specs}
        await self._supervisor.follow(specs, self._mine.__contains__)
        self._mine = {spec.name for spec in specs}
