"""What counts as a response to a probe, and probe timeouts, under a virtual clock.

The lightweight HTTP reader handles plain responses on a kept connection and rejects everything else clearly.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from math import inf

import pytest
import pytest_asyncio
from aiohttp import web

from gateway.base.settings import PROBE_TIMEOUT_S
from gateway.pools.engines.engine_session import engine_session
from gateway.pools.engines.health_probe import LONGEST, EngineAnswerError, EnginePausedError, EngineUnreachableError
from gateway.pools.engines.probe_http import NotPlainError, ProbeClient, TooLongError
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


class Server:
    """Answer each request with the next item of `answers`; None closes the connection instead."""

    def __init__(self) -> None:
        self.answers: list[bytes | None] = []
        self.requests: list[bytes] = []
        self.connections = 0
        self.port = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                answer = self.answers.pop(0)
                if answer is None:
                    return
                for part in answer.split(b"|"):
                    writer.write(part)
                    await asyncio.sleep(0)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


@pytest_asyncio.fixture
async def server() -> AsyncIterator[Server]:
    running = Server()
    listener = await asyncio.start_server(running.handle, "127.0.0.1", 0)
    running.port = listener.sockets[0].getsockname()[1]
    yield running
    listener.close()
    await listener.wait_closed()


@pytest_asyncio.fixture
async def reader(server: Server) -> AsyncIterator[ProbeClient]:
    get = ProbeClient(f"http://127.0.0.1:{server.port}", {"Authorization": "Bearer x"})
    yield get
    get.close()


def whole(body: bytes, head: bytes = b"") -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=1\r\nContent-Length: %d\r\n%s\r\n%s" % (
        len(body),
        head,
        body,
    )


async def test_whole_and_fragmented_responses_arrive_over_one_connection(server: Server, reader: ProbeClient) -> None:
    server.answers = [whole(b"one"), b"HTTP/1.1 404 No|\r\nContent-Le|ngth: 2\r\n\r|\nn|o", whole(b"")]
    assert await reader.get("/load", limit=100, timeout_s=5) == (200, "text/plain", b"one")
    assert await reader.get("/load", limit=100, timeout_s=5) == (404, "", b"no")
    assert (await reader.get("/x", limit=100, timeout_s=5)).body == b""
    assert server.connections == 1
    assert server.requests[0].startswith(b"GET /load HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"Authorization: Bearer x\r\n" in server.requests[0]


async def test_a_connection_that_the_server_closed_between_requests_is_replaced(
    server: Server, reader: ProbeClient
) -> None:
    server.answers = [whole(b"one"), None, whole(b"two"), whole(b"three", b"Connection: close\r\n"), whole(b"four")]
    for expected in (b"one", b"two", b"three", b"four"):
        assert (await reader.get("/", limit=100, timeout_s=5)).body == expected
    assert server.connections == 3


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nxx",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nxx",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nxxx",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"x" * 20_000,
    ],
)
async def test_other_response_forms_are_left_to_a_full_client(
    server: Server, reader: ProbeClient, answer: bytes
) -> None:
    server.answers = [answer]
    with pytest.raises(NotPlainError):
        await reader.get("/", limit=100, timeout_s=5)


async def test_length_and_duration_are_limited(server: Server, reader: ProbeClient) -> None:
    server.answers = [whole(b"x" * 11), b"HTTP/1.1 200", whole(b"fine")]
    with pytest.raises(TooLongError):
        await reader.get("/", limit=10, timeout_s=5)
    with pytest.raises(TimeoutError):
        await reader.get("/", limit=10, timeout_s=0.05)
    assert (await reader.get("/", limit=10, timeout_s=5)).body == b"fine"


async def test_a_truncated_response_is_an_error_and_is_not_requested_again(server: Server, reader: ProbeClient) -> None:
    server.answers = [whole(b"one")]
    await reader.get("/", limit=10, timeout_s=5)
    server.answers = [None, None]
    with pytest.raises(ConnectionError):
        await reader.get("/", limit=10, timeout_s=5)
    assert len(server.requests) == 3


def test_tls_is_left_to_the_full_client() -> None:
    assert ProbeClient.speaks("http://10.0.0.1:8000")
    assert not ProbeClient.speaks("https://10.0.0.1:8000")
