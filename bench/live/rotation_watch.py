"""Observe from outside which engines a running program keeps out of rotation, and why."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import aiohttp

_STATE = re.compile(r"^headway_engine_state\{([^}]*)\} 1(?:\.0)?$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_VERDICTS = (
    "select engine.engine_id, health.state, health.code from controlplane_enginehealth health"
    " join controlplane_engine engine on engine.id = health.engine_id"
)
_EVERY_S = 0.2


class RotationWatch:
    """Reads the gateway's metrics and the verdicts five times a second.

    Mutable: `states`, the current state of each engine, and `history` of (monotonic second, engine, state). States: in;
    suspect and probation (in, and watched); lost (the gateway's breaker); otherwise the verdict's code.
    """

    def __init__(self, url: str, database: Path) -> None:
        self._url = url
        self._database = database
        self.states: dict[str, str] = {}
        self.history: list[tuple[float, str, str]] = []

    async def run(self) -> None:
        """Watch until cancelled."""
        async with aiohttp.ClientSession() as session:
            while True:
                await self._read(session)
                await asyncio.sleep(_EVERY_S)

    def is_out(self, engine_id: str) -> bool:
        """Return whether the engine gets no new work."""
        return self.states.get(engine_id, "in") not in ("in", "suspect", "probation")

    async def until(self, engine_id: str, *, out: bool, limit_s: float) -> float | None:
        """Return the seconds until the engine is out, or back in. None on timeout."""
        return await self._until(lambda: self.is_out(engine_id) == out, limit_s)

    async def until_state(self, engine_id: str, state: str, limit_s: float) -> float | None:
        """Return the seconds until the engine has this state. None on timeout."""
        return await self._until(lambda: self.states.get(engine_id) == state, limit_s)

    async def _until(self, holds: Callable[[], bool], limit_s: float) -> float | None:
        start = time.monotonic()
        while not holds():
            if time.monotonic() - start > limit_s:
                return None
            await asyncio.sleep(_EVERY_S / 2)
        return time.monotonic() - start

    async def _read(self, session: aiohttp.ClientSession) -> None:
        try:
            async with session.get(f"{self._url}/metrics", timeout=aiohttp.ClientTimeout(total=2)) as answer:
                text = await answer.text()
            verdicts = await asyncio.to_thread(self._verdicts)
        except (aiohttp.ClientError, OSError, TimeoutError, sqlite3.OperationalError):
            return
        for labels in _STATE.findall(text):
            series = dict(_LABEL.findall(labels))
            engine_id = series["engine"]
            verdict, code = verdicts.get(engine_id, ("healthy", ""))
            shown = {"lost": "lost", "quarantined": "suspected"}.get(series["state"], verdict)
            state = code if verdict == "quarantined" else shown
            state = "in" if state == "healthy" else state
            if self.states.get(engine_id) != state:
                self.states[engine_id] = state
                self.history.append((time.monotonic(), engine_id, state))

    def _verdicts(self) -> dict[str, tuple[str, str]]:
        with sqlite3.connect(f"file:{self._database}?mode=ro", uri=True) as database:
            return {name: (state, code) for name, state, code in database.execute(_VERDICTS)}
