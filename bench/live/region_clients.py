"""Clients of several regions: open-loop streams of chats, and the outcome of each.

The clients of a region share prompt beginnings, so that their region's engines hold them.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from http import HTTPStatus

import aiohttp

from bench.live.live_fleet import API_KEY, MODEL
from bench.live.region_fleet import REGIONS, RegionFleet

PROMPT_TOKENS = 2000
OUTPUT_TOKENS = 24
HEADS = 12
"""Prompt beginnings shared by the clients of one region."""


@dataclass
class ClientRequest:
    """One request, as observed by its client."""

    region: str
    sent_s: float
    status: int = 0
    """0: no answer. -1: the connection failed before an answer."""
    reason: str = ""
    """Code of the error in the answer."""
    decision_id: str = ""
    complete: bool = False
    error_event: bool = False
    first_s: float | None = None


def outcome(request: ClientRequest) -> str:
    """Return the outcome: completed, broken_off (an error in the stream), cut_off, or a status and a reason."""
    if request.complete:
        return "completed"
    if request.error_event:
        return "broken_off"
    if request.status == HTTPStatus.OK:
        return "cut_off"
    if request.status <= 0:
        return "no_connection" if request.status else "silent"
    return f"{request.status}_{request.reason}"


@dataclass
class RegionClients:
    """Sends chats. Mutable: the requests, each region's rate, and the gateway used by each region's clients."""

    fleet: RegionFleet
    session: aiohttp.ClientSession
    seed: int
    rates: dict[str, float] = field(default_factory=lambda: dict.fromkeys(REGIONS, 1.0))
    via: dict[str, str] = field(default_factory=lambda: {name: name for name in REGIONS})
    """Region of the clients → region of the gateway that they use."""
    requests: list[ClientRequest] = field(default_factory=list)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def run(self) -> None:
        """Send at the rates until cancelled."""
        await asyncio.gather(*(self._stream(region, number) for number, region in enumerate(REGIONS)))

    async def finish(self, limit_s: float) -> None:
        """Wait for the running requests."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=limit_s)
        for task in list(self._tasks):
            task.cancel()

    async def _stream(self, region: str, number: int) -> None:
        rng = random.Random(self.seed * 1000 + number)
        while True:
            rate = self.rates[region]
            await asyncio.sleep(rng.expovariate(rate) if rate else 0.1)
            if rate:
                task = asyncio.create_task(
                    self._send(region, rng.randrange(1 << 30), number * HEADS + rng.randrange(HEADS))
                )
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _send(self, region: str, seed: int, shared: int) -> None:
        made = random.Random(seed)
        head = random.Random(shared)
        # Half of the prompt is shared within the region, half is the request's own.
        tokens = [head.randrange(30_000) for _ in range(PROMPT_TOKENS // 2)]
        tokens += [made.randrange(30_000) for _ in range(PROMPT_TOKENS // 2)]
        body = {"model": MODEL, "prompt": tokens, "max_tokens": OUTPUT_TOKENS, "stream": True}
        request = ClientRequest(region, time.time())
        self.requests.append(request)
        headers = {"authorization": f"Bearer {API_KEY}"}
        try:
            async with self.session.post(
                f"{self.fleet.url(self.via[region])}/v1/completions", json=body, headers=headers
            ) as response:
                request.status = response.status
                request.decision_id = response.headers.get("x-headway-decision", "")
                if request.status != HTTPStatus.OK:
                    request.reason = str((await response.json(content_type=None))["error"]["code"])
                    return
                async for line in response.content:
                    request.first_s = request.first_s or time.time()
                    request.complete = request.complete or line.startswith(b"data: [DONE]")
                    request.error_event = request.error_event or b'"error"' in line[:64]
        except (aiohttp.ClientError, OSError):
            request.status = request.status or -1
