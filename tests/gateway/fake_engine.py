"""An HTTP engine with responses set by a test, and a KV-event publisher with a history written by a test."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import zmq
import zmq.asyncio
from aiohttp import web

from bench.live.loopback_ports import free_ports
from tests.gateway.ports import listen

METRICS = b"""# HELP process_start_time_seconds Start time.
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1000.5
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a model, with {braces} and \\"quotes\\""} 3.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 99.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 1658.0
vllm:prefix_cache_queries_created{engine="0",model_name="m"} 1.7e+09
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 768.0
vllm:cache_config_info{block_size="32",enable_prefix_caching="True",engine="0"} 1.0
"""


class FakeEngine:
    """Serve one handler per path; `set` creates a handler from status, body and headers."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.answers: dict[str, Callable[[], web.StreamResponse]] = {}
        self.hang = False
        self.hangs_at = ""
        """A path that alone is not answered."""
        self.set("/health", 200, b"")
        self.set("/load", 200, b'{"server_load":7}')
        self.set("/metrics", 200, METRICS, content_type="text/plain")

    def set(
        self,
        path: str,
        status: int,
        body: bytes,
        *,
        content_type: str = "application/json",
        headers: dict[str, str] | None = None,
    ) -> None:
        """Set the response of `path`."""
        self.answers[path] = lambda: web.Response(
            status=status, body=body, headers={"Content-Type": content_type, **(headers or {})}
        )

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Record the request and respond."""
        self.asked.append((request.method, request.path, dict(request.headers), await request.read()))
        if self.hang or request.path == self.hangs_at:
            await asyncio.sleep(60)
        answer = self.answers.get(request.path)
        return answer() if answer is not None else web.Response(status=404)


@asynccontextmanager
async def fake_engine() -> AsyncIterator[FakeEngine]:
    """Run a FakeEngine on a free port."""
    listener = listen()
    engine = FakeEngine(f"http://127.0.0.1:{listener.getsockname()[1]}")
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", engine.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.SockSite(runner, listener).start()
    try:
        yield engine
    finally:
        await runner.cleanup()


class FakePublisher:
    """Speak vLLM's event protocol on a PUB and a ROUTER socket from a history that the test extends."""

    def __init__(self, context: zmq.asyncio.Context, *, buffer: int = 10_000, topic_in_replay: bool = True) -> None:
        self.history: deque[tuple[int, bytes]] = deque(maxlen=buffer)
        self.next_seq = 0
        self.replays: list[int] = []
        self.answers = True
        self._topic_in_replay = topic_in_replay
        self._context = context
        port, replay_port = free_ports(2)
        self.endpoint = f"tcp://127.0.0.1:{port}"
        self._pub = context.socket(zmq.PUB)
        self._pub.bind(self.endpoint)
        self.replay_endpoint = f"tcp://127.0.0.1:{replay_port}"
        self._router = context.socket(zmq.ROUTER)
        self._router.bind(self.replay_endpoint)
        self._task = asyncio.create_task(self._serve())

    async def publish(self, payload: bytes, *, lose: bool = False) -> None:
        """Number and store the batch, and send it unless it is to be lost."""
        self.history.append((self.next_seq, payload))
        if not lose:
            await self.send(self.next_seq, payload)
        self.next_seq += 1

    async def send(self, seq: int, payload: bytes) -> None:
        """Send frames whether or not they are in the history."""
        await self._pub.send_multipart([b"kv@x", seq.to_bytes(8, "big"), payload])

    async def send_raw(self, *frames: bytes) -> None:
        """Send frames unchanged."""
        await self._pub.send_multipart(list(frames))

    def restart(self) -> None:
        """Clear the history and number from 0 again, as a new process does."""
        self.history.clear()
        self.next_seq = 0

    async def _serve(self) -> None:
        topic = [b"kv@x"] if self._topic_in_replay else []
        while True:
            client, _, start = await self._router.recv_multipart()
            self.replays.append(int.from_bytes(start, "big"))
            if not self.answers:
                continue
            for seq, payload in list(self.history):
                if seq >= self.replays[-1]:
                    await self._router.send_multipart([client, b"", *topic, seq.to_bytes(8, "big"), payload])
            await self._router.send_multipart([client, b"", *topic, b"\xff" * 8, b""])

    async def close(self) -> None:
        """Close both sockets."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._pub.close(linger=0)
        self._router.close(linger=0)
