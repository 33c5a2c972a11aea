"""Callers of the decision API behind their own balancer, and the outcome of every decision."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Sequence
from uuid import uuid4

import aiohttp
import msgspec

PATIENCE_S = 20.0
_READY_EVERY_S = 0.1
_PAUSE_S = 0.02


class AskedDecision(msgspec.Struct, gc=False):
    """One decision. Times are in seconds since the history began."""

    number: int
    asked_s: float
    attempts: int = 0
    """Calls with one X-Request-Id, not counting those answered 429. Above 1, a connection failed."""
    throttled: int = 0
    """Answers 429 before the last one: the gateway was overloaded, and the caller retried as requested."""
    status: int = 0
    """0 if lost: no gateway answered for PATIENCE_S."""
    answered_s: float = 0.0
    decision_id: str = ""
    why: str = ""
    """Why the first call failed."""
    report_status: int = 0
    """Status of its end report, sent to another gateway if there is one. 0 if the connection failed."""

    @property
    def took_s(self) -> float:
        """Time from the first call to the answer, including failed calls."""
        return self.answered_s - self.asked_s


class DecisionHistory:
    """Requests decisions in closed loops. Mutable: `decided`, in request order, and which gateways are up.

    Like a balancer, it rotates through the gateways that are up, marks one down when its connection fails until its
    /ready answers again, and retries at the next one with the same request id.
    """

    def __init__(self, urls: Sequence[str], api_key: str, model: str) -> None:
        self.decided: list[AskedDecision] = []
        self.began = time.monotonic()
        self._urls = urls
        self._up = list(urls)
        self._headers = {"Authorization": f"Bearer {api_key}"}
        self._model = model

    def now(self) -> float:
        """Return seconds since the history began."""
        return time.monotonic() - self.began

    async def run(self, callers: int, stop: asyncio.Event) -> None:
        """Run this many callers, each requesting one decision after the other, until `stop` is set."""
        async with (
            aiohttp.ClientSession(headers=self._headers, connector=aiohttp.TCPConnector(limit=0)) as session,
            asyncio.TaskGroup() as all_,
        ):
            all_.create_task(self._watch_ready(session, stop))
            for _ in range(callers):
                all_.create_task(self._call(session, stop))

    async def _call(self, session: aiohttp.ClientSession, stop: asyncio.Event) -> None:
        while not stop.is_set():
            decided = AskedDecision(len(self.decided), self.now())
            self.decided.append(decided)
            await self._decide(session, decided)
            if decided.status == 200:
                await self._report(session, decided)
            await asyncio.sleep(_PAUSE_S)

    async def _decide(self, session: aiohttp.ClientSession, decided: AskedDecision) -> None:
        headers = {"X-Request-Id": uuid4().hex}
        body = {"model": self._model, "token_ids": [decided.number] * 256, "wait": False}
        answered_s = decided.asked_s
        while not decided.status and self.now() - answered_s < PATIENCE_S:
            url = (self._up or self._urls)[decided.number % len(self._up or self._urls)]
            try:
                async with session.post(f"{url}/api/v1/route", json=body, headers=headers) as answer:
                    if answer.status == 429:
                        decided.throttled += 1
                        # A 429 is an answer: only silence counts against the patience.
                        answered_s = self.now()
                        await asyncio.sleep(float(answer.headers.get("Retry-After", 1)))
                        continue
                    decided.decision_id = (await answer.json()).get("decision_id", "")
                    decided.status = answer.status
                    decided.attempts += 1
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                decided.attempts += 1
                decided.why = decided.why or f"{type(error).__name__}: {error}"
                self._up = [item for item in self._up if item != url]
        decided.answered_s = self.now()

    async def _report(self, session: aiohttp.ClientSession, decided: AskedDecision) -> None:
        up = self._up or self._urls
        path = f"/api/v1/requests/{decided.decision_id}/complete"
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with session.post(f"{up[(decided.number + 1) % len(up)]}{path}", json={}) as answer:
                decided.report_status = answer.status

    async def _watch_ready(self, session: aiohttp.ClientSession, stop: asyncio.Event) -> None:
        while not stop.is_set():
            for url in [item for item in self._urls if item not in self._up]:
                try:
                    async with session.get(f"{url}/ready") as answer:
                        if answer.status == 200:
                            self._up = [*self._up, url]
                except (aiohttp.ClientError, OSError, TimeoutError):
                    continue
            await asyncio.sleep(_READY_EVERY_S)


def p99_s(decided: Sequence[AskedDecision]) -> float:
    """Return the 99th percentile of the time to an answer, 0 without answers."""
    took = sorted(item.took_s for item in decided if item.status)
    return took[math.ceil(0.99 * len(took)) - 1] if took else 0.0


def figures(decided: Sequence[AskedDecision], disturbed: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Return counts and two p99s: of decisions requested while a gateway was down (`disturbed`), and of others."""
    away = [
        item for item in decided if any(begin <= item.answered_s and item.asked_s < end for begin, end in disturbed)
    ]
    names = {item.number for item in away}
    calm = p99_s([item for item in decided if item.number not in names])
    return {
        "decisions": len(decided),
        "decisions_asked_again": sum(item.attempts > 1 for item in decided),
        "decisions_throttled": sum(item.throttled > 0 for item in decided),
        "decisions_lost": sum(not item.status for item in decided),
        "decisions_rejected": sum(item.status not in (0, 200) for item in decided),
        "reports_not_taken": sum(item.status == 200 and item.report_status != 200 for item in decided),
        "decision_p99_s": round(calm, 4),
        "decision_p99_gateway_away_s": round(p99_s(away), 4),
        "decision_p99_ratio": round(p99_s(away) / calm, 2) if calm else 0.0,
    }
