"""What counts as a response to a probe, and probe timeouts, under a virtual clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from math import inf

import pytest
from aiohttp import web

from gateway.base.settings import PROBE_TIMEOUT_S
from gateway.pools.engines.engine_session import engine_session
from gateway.pools.engines.health_probe import LONGEST, EngineAnswerError, EnginePausedError, EngineUnreachableError
from gateway.pools.engines.vllm_adapter import VllmAdapter
from tests.gateway.ports import listen
from tests.virtual_time import run_virtually

TIMEOUT_S = float(PROBE_TIMEOUT_S)


class Probed:
    """An engine with a scripted delay per path that counts the requests to it."""

    def __init__(self, adapter: VllmAdapter) -> None:
        self.adapter = adapter
        self.after_s: dict[str, float] = {}
        self.status: dict[str, int] = {}
        self.paused = False

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        after_s = self.after_s.get(path, 0.0)
        await asyncio.sleep(86_400.0 if after_s == inf else after_s)
        if path == "/is_paused":
            return web.json_response({"is_paused": self.paused})
        return web.Response(status=self.status.get(path, 200), text="")

    async def probe(self) -> tuple[str, float]:
        """Return a probe's result and duration."""
        begun_s = time.monotonic()
        try:
            said = await self.adapter.probe() or "well"
        except EngineUnreachableError as error:
            said = f"silent: {error}" if error.timed_out else f"gone: {error}"
        return said, time.monotonic() - begun_s


@asynccontextmanager
async def probed() -> AsyncIterator[Probed]:
    listener = listen()
    async with engine_session(keepalive_s=30.0) as session:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        engine = Probed(VllmAdapter(session, url, timeout_s=TIMEOUT_S))
        app = web.Application()
        app.router.add_get("/{path:.*}", engine.answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        site = web.SockSite(runner, listener)
        await site.start()
        try:
            yield engine
        finally:
            await runner.cleanup()


def virtually(test: Callable[[Probed], Awaitable[None]]) -> None:
    async def run() -> None:
        async with probed() as engine:
            await test(engine)

    run_virtually(run())


def test_late_health_is_not_silence_while_metrics_respond() -> None:
    async def test(engine: Probed) -> None:
        engine.after_s["/health"] = inf
        said, took_s = await engine.probe()
        assert said == "health timed out after 5 s, but metrics are answered"
        assert took_s == pytest.approx(TIMEOUT_S, abs=1.0)
        engine.status["/metrics"] = 500
        assert "metrics are answered" in (await engine.probe())[0]

    virtually(test)


def test_silence_of_health_and_metrics_takes_no_longer_than_one_timeout() -> None:
    async def test(engine: Probed) -> None:
        engine.after_s |= {"/health": inf, "/metrics": inf}
        said, took_s = await engine.probe()
        assert said == "silent: health timed out after 5 s"
        assert took_s == pytest.approx(TIMEOUT_S, abs=1.0)

    virtually(test)


def test_an_unhealthy_response_is_believed_immediately() -> None:
    async def test(engine: Probed) -> None:
        engine.status["/health"] = 503
        with pytest.raises(EngineAnswerError, match="health answered 503"):
            await engine.adapter.probe()
        engine.status["/health"], engine.paused = 200, True
        with pytest.raises(EnginePausedError):
            await engine.adapter.probe()

    virtually(test)


def test_an_engine_that_responds_late_gets_twice_that_time() -> None:
    async def test(engine: Probed) -> None:
        engine.after_s["/metrics"] = inf
        for late_s in (4.0, 7.5, 14.0, 27.0):
            engine.after_s["/health"] = late_s
            assert (await engine.probe())[0] == "well"
        engine.after_s["/health"] = inf
        assert (await engine.probe())[1] == pytest.approx(LONGEST * TIMEOUT_S, abs=1.0)

    virtually(test)


def test_each_silent_probe_after_the_second_waits_twice_as_long() -> None:
    async def test(engine: Probed) -> None:
        engine.after_s |= {"/health": 18.0, "/metrics": inf}
        took = [await engine.probe() for _ in range(4)]
        assert [item for _, item in took] == pytest.approx([5.0, 5.0, 10.0, 18.0], abs=1.0)
        assert took[-1][0] == "well"
        engine.after_s["/health"] = 0.0
        assert (await engine.probe())[0] == "well"

    virtually(test)


def test_an_unanswered_pause_query_during_a_long_step_is_not_silence() -> None:
    async def test(engine: Probed) -> None:
        engine.after_s |= {"/is_paused": inf, "/metrics": inf}
        assert (await engine.probe())[0] == "well"

    virtually(test)
