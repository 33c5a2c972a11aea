"""Clients that send generated traffic to gateways and record the outcome of every request."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from typing import Literal

import aiohttp
import msgspec

Fate = Literal["whole", "broken_off", "rejected", "lost"]
"""broken_off: incomplete after the first byte. rejected: status 429. lost: no first byte."""

_STREAMED = 0.8
_PATIENCE_S = 60.0
_PAUSE_S = 0.3


class Decided(msgspec.Struct, frozen=True):
    """One decision as explained by its gateway. `decided_at` is in Unix seconds, `number` is the policy version."""

    gateway: str
    decided_at: float
    number: int


class Asked(msgspec.Struct, gc=False):
    """One request of one client. Times are in seconds since the history began."""

    number: int
    sent_s: float
    streams: bool
    attempts: int = 0
    """Connections made: if a gateway fails before the first byte, the client tries another one."""
    status: int = 0
    first_s: float | None = None
    ended_s: float | None = None
    fate: Fate = "lost"
    why: str = ""
    decided: Decided | None = None
    """The answering gateway's explanation of its decision, if clients request it."""

    @property
    def ttft_s(self) -> float | None:
        """Time to the first byte. For an answer without streaming, to its end."""
        return None if self.first_s is None else self.first_s - self.sent_s


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """The form of requests. Four characters are a token."""

    prefixes: int = 12
    prefix_signs: int = 4000
    own_signs: tuple[int, int] = (400, 6000)
    output_tokens: tuple[int, int] = (8, 48)


class ClientHistory:
    """Sends requests in bursts and records their history. Mutable: `asked`, in sending order.

    `urls` are equivalent gateways, used in turn. A request tries the next one if its connection fails before the first
    byte, for at most a minute, and with `persistent` also while the answer is 503. With `asks_why`, each request ends
    with a query for its explanation.
    """

    def __init__(
        self,
        urls: Sequence[str],
        api_key: str,
        model: str,
        seed: int,
        *,
        persistent: bool = False,
        asks_why: bool = False,
        shape: Shape | None = None,
    ) -> None:
        self.asked: list[Asked] = []
        self.began = time.monotonic()
        self._urls = urls
        self._headers = {"Authorization": f"Bearer {api_key}"}
        self._model = model
        self._persistent = persistent
        self._asks_why = asks_why
        self._shape = shape or Shape()
        self._rng = random.Random(seed)
        prefixes = random.Random(seed + 1)
        self._prefixes = [
            "".join(prefixes.choices("abcdefgh ", k=self._shape.prefix_signs)) for _ in range(self._shape.prefixes)
        ]

    def now(self) -> float:
        """Return seconds since the history began."""
        return time.monotonic() - self.began

    async def run(self, rate: Callable[[float], float], stop: asyncio.Event) -> None:
        """Send `rate(now)` requests per second until `stop` is set. Returns when all have ended."""
        connector = aiohttp.TCPConnector(limit=0)
        async with (
            aiohttp.ClientSession(headers=self._headers, connector=connector) as session,
            asyncio.TaskGroup() as all_,
        ):
            while not stop.is_set():
                all_.create_task(self._ask(session, Asked(len(self.asked), self.now(), self._rng.random() < _STREAMED)))
                await asyncio.sleep(self._rng.expovariate(rate(self.now())))

    async def _ask(self, session: aiohttp.ClientSession, asked: Asked) -> None:
        self.asked.append(asked)
        body = self._body(asked)
        while True:
            url = self._urls[(asked.number + asked.attempts) % len(self._urls)]
            asked.attempts += 1
            try:
                await self._send(session, url, asked, body)
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                asked.why = type(error).__name__
                # After the first byte a retry would repeat tokens that the client has already received.
                if asked.first_s is None and self.now() - asked.sent_s < _PATIENCE_S:
                    await asyncio.sleep(_PAUSE_S)
                    continue
            if self._persistent and asked.status == 503 and self.now() - asked.sent_s < _PATIENCE_S:
                await asyncio.sleep(_PAUSE_S)
                continue
            break
        asked.ended_s = self.now()
        if asked.first_s is not None and asked.fate == "lost":
            asked.fate = "broken_off"

    async def _send(self, session: aiohttp.ClientSession, url: str, asked: Asked, body: dict[str, object]) -> None:
        timeout = aiohttp.ClientTimeout(total=2 * _PATIENCE_S, sock_connect=2.0)
        async with session.post(f"{url}/v1/chat/completions", json=body, timeout=timeout) as answer:
            asked.status = answer.status
            if answer.status != 200:
                asked.fate = "rejected" if answer.status == 429 else "lost"
                asked.why = (await answer.text())[:300]
                return
            await self._read(answer, asked)
            if self._asks_why:
                asked.decided = await _explained(session, url, answer.headers["x-headway-decision"])

    async def _read(self, answer: aiohttp.ClientResponse, asked: Asked) -> None:
        if not asked.streams:
            await answer.read()
            asked.first_s, asked.fate = self.now(), "whole"
            return
        async for line in answer.content:
            if asked.first_s is None:
                asked.first_s = self.now()
            if line.strip() == b"data: [DONE]":
                asked.fate = "whole"

    def _body(self, asked: Asked) -> dict[str, object]:
        rng = self._rng
        own = "".join(rng.choices("ijklmnop ", k=rng.randint(*self._shape.own_signs)))
        text = f"{rng.choice(self._prefixes)} {asked.number} {own}"
        return {
            "model": self._model,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": rng.randint(*self._shape.output_tokens),
            "stream": asked.streams,
        }


async def _explained(session: aiohttp.ClientSession, url: str, decision: str) -> Decided | None:
    """Return the gateway's explanation of the decision, None if it no longer has one."""
    try:
        async with session.get(f"{url}/api/v1/explain/{decision}", timeout=aiohttp.ClientTimeout(total=5.0)) as answer:
            if answer.status != 200:
                return None
            explained = await answer.json()
    except (aiohttp.ClientError, OSError, TimeoutError):
        return None
    return Decided(url, explained["decided_at"], explained["decision"]["policy_version"])
