"""Clients of several regions: open-loop streams of chats, and the outcome of each.

The clients of a region share prompt beginnings, so that their region's engines hold them.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Sequence
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
    cached_tokens: int = 0
    """Prompt tokens from the engine's cache, according to the answer's usage."""


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
                self.send(region, _prompt(rng.randrange(1 << 30), number * HEADS + rng.randrange(HEADS)))

    def send(self, region: str, prompt: Sequence[int], output_tokens: int = OUTPUT_TOKENS) -> ClientRequest:
        """Send one request with these token ids now; return it before its answer."""
        request = ClientRequest(region, time.time())
        self.requests.append(request)
        task = asyncio.create_task(self._send(request, prompt, output_tokens))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return request

    async def _send(self, request: ClientRequest, prompt: Sequence[int], output_tokens: int) -> None:
        body = {
            "model": MODEL,
            "prompt": prompt,
            "max_tokens": output_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        headers = {"authorization": f"Bearer {API_KEY}"}
        try:
            async with self.session.post(
                f"{self.fleet.url(self.via[request.region])}/v1/completions", json=body, headers=headers
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
                    if b'"cached_tokens"' in line:
                        usage = json.loads(line.removeprefix(b"data: "))["usage"]
                        request.cached_tokens = usage["prompt_tokens_details"]["cached_tokens"]
        except (aiohttp.ClientError, OSError):
            request.status = request.status or -1


def _prompt(seed: int, shared: int) -> list[int]:
    """Return a prompt of which half is shared within the region, and half is the request's own."""
    head, made = random.Random(shared), random.Random(seed)
    return [part.randrange(30_000) for part in (head, made) for _ in range(PROMPT_TOKENS // 2)]
