"""Kill one process after another at random, and restart each after a while."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import msgspec

from bench.installation.soak_run.installation import ENGINES, Installation

KINDS = {"worker": 4, "beat": 2, "gateway": 3, "engine": 4, "web": 1}
"""Weight of each kind in the random choice."""
PAUSE_S, DOWN_S = (3.0, 7.0), (0.5, 3.0)


class Kill(msgspec.Struct):
    """One process that was down from `at_s` until `back_s`, in seconds of the clients' history."""

    name: str
    at_s: float
    back_s: float = float("inf")


class Killer:
    """Kills processes. Mutable: `kills` so far. At most half of the engines and one of each other kind are down.

    A gateway counts as down until it serves again, since clients need another one until then.
    """

    def __init__(self, installation: Installation, seed: int, now: Callable[[], float]) -> None:
        self.kills: list[Kill] = []
        self._installation = installation
        self._rng = random.Random(seed)
        self._now = now
        self._away: set[str] = set()

    async def run(self, stop: asyncio.Event) -> None:
        """Kill until `stop` is set. Returns when all processes are back."""
        async with asyncio.TaskGroup() as restarts:
            while not stop.is_set():
                await asyncio.sleep(self._rng.uniform(*PAUSE_S))
                name = self._choose()
                if name and not stop.is_set():
                    restarts.create_task(self._kill(name, self._rng.uniform(*DOWN_S)))

    def _choose(self) -> str:
        kind = self._rng.choices(list(KINDS), weights=list(KINDS.values()))[0]
        name = self._rng.choice(self._installation.names(kind))
        away = sum(item.startswith(kind) for item in self._away)
        return name if name not in self._away and away < (ENGINES // 2 if kind == "engine" else 1) else ""

    async def _kill(self, name: str, down_s: float) -> None:
        self._away.add(name)
        kill = Kill(name, self._now())
        self.kills.append(kill)
        await asyncio.to_thread(self._installation.kill, name)
        await asyncio.sleep(down_s)
        await asyncio.to_thread(self._installation.restart, name)
        kill.back_s = self._now()
        self._away.discard(name)
