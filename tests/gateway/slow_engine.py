"""Engines for the test's event loop: one is healthy but slow in every way that appears dead, one is dead."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from random import Random
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from tests.gateway.ports import listen

WELL, KILLED, FROZEN, HUNG = "well", "killed", "frozen", "hung"
"""killed: no process. frozen: nothing is answered, as under SIGSTOP. hung: probes are answered and no request is."""
LATE_HEALTH, UNHEALTHY, PAUSED, COUNTING = "late health", "unhealthy", "paused", "counting"
"""late health: all but /health is answered. unhealthy: /health is 503, requests are answered. paused: it says so, and
begins no answer. counting: its counters move and no request is answered, as where a parser holds tokens back."""
LONGEST_START_S, LONGEST_PROBE_S, LONGEST_ANSWER_S = 60.0, 5.0, 600.0
PIECE_S = 2.0
"""Between two pieces of a stream."""
TOKENS_PER_S = 20


@dataclass
class Run:
    """One request at one engine, in virtual seconds. Mutable: it ends."""

    seed: int
    begun_s: float
    first_piece_s: float | None = None
    ended_s: float | None = None
    cancelled: bool = False


@dataclass
class SlowEngine:
    """Serves chats with generated delays. Mutable: its fault, the end of its compilation, and its recorded runs."""

    rng: Random
    fault: str = WELL
    fault_s: float | None = None
    stalled_until_s: float = 0.0
    """It compiles: nothing moves before, not even what runs."""
    runs: list[Run] = field(default_factory=list)
    _prompts: int = 0
    _tokens: int = 0
    _live: int = 0

    async def __aenter__(self) -> Self:
        self._listener = listen()
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        app = web.Application()
        app.router.add_get("/health", self._health)
        app.router.add_get("/is_paused", self._is_paused)
        app.router.add_get("/load", self._load)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/completions", self._trial)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        await web.SockSite(self._runner, self._listener).start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    async def fail(self, fault: str) -> None:
        """Fail in this way."""
        self.fault, self.fault_s = fault, time.monotonic()
        if fault == KILLED:
            await self._runner.cleanup()

    async def _api_server(self) -> None:
        """Take as long as a busy API server, or forever if the process is stopped."""
        await asyncio.sleep(self.rng.uniform(0.0, LONGEST_PROBE_S) if self.rng.random() < 0.3 else 0.01)
        await self._while(FROZEN)

    async def _core(self) -> None:
        """Wait for a step of the engine."""
        await asyncio.sleep(max(0.0, self.stalled_until_s - time.monotonic()))
        await self._while(FROZEN, HUNG, COUNTING)

    async def _while(self, *faults: str) -> None:
        while self.fault in faults:
            await asyncio.sleep(1.0)

    async def _health(self, _: web.Request) -> web.Response:
        await self._api_server()
        await self._while(LATE_HEALTH)
        return web.Response(status=503 if self.fault == UNHEALTHY else 200)

    async def _is_paused(self, _: web.Request) -> web.Response:
        await self._api_server()
        return web.json_response({"is_paused": self.fault == PAUSED})

    async def _load(self, _: web.Request) -> web.Response:
        await self._api_server()
        return web.json_response({"server_load": self._live})

    async def _metrics(self, _: web.Request) -> web.Response:
        await self._api_server()
        self._tokens += self.fault == COUNTING
        text = "".join(
            f'vllm:{name}{{engine="0",model_name="m"}} {value}\n'
            for name, value in (
                ("num_requests_running", self._live),
                ("num_requests_waiting", 0),
                ("kv_cache_usage_perc", 0.1),
                ("prompt_tokens_total", self._prompts),
                ("generation_tokens_total", self._tokens),
            )
        )
        return web.Response(text=text, content_type="text/plain")

    async def _trial(self, request: web.Request) -> web.Response:
        await request.read()
        await self._core()
        return web.json_response({"choices": [{"text": "x"}]})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        run = Run(body["seed"], time.monotonic())
        self.runs.append(run)
        self._live += 1
        try:
            return await self._answer(request, body, run)
        except (asyncio.CancelledError, ConnectionError):
            run.cancelled = True
            raise
        finally:
            run.ended_s = time.monotonic()
            self._live -= 1

    async def _answer(self, request: web.Request, body: dict[str, Any], run: Run) -> web.StreamResponse:
        await asyncio.sleep(body["start_s"])
        await self._while(PAUSED)
        self._prompts += self.fault not in (FROZEN, HUNG)
        left = int(body["answer_s"] / PIECE_S) + 1
        response = None
        if body.get("stream"):
            response = web.StreamResponse(headers={"content-type": "text/event-stream"})
            await response.prepare(request)
        for _ in range(left):
            await self._core()
            self._tokens += round(PIECE_S * TOKENS_PER_S)
            if response is not None:
                run.first_piece_s = run.first_piece_s or time.monotonic()
                await response.write(b'data: {"choices": [{"index": 0, "delta": {"content": "on"}}]}\n\n')
            await asyncio.sleep(PIECE_S)
        if response is None:
            return web.json_response({"choices": [{"index": 0, "message": {"content": "on"}}]})
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response
