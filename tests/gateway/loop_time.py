"""The time that one callback holds the event loop, in processor time of its thread, unaffected by other programs."""

from __future__ import annotations

import asyncio
import gc
import http.client
import statistics
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import msgspec

from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import KEY, ServedGateway
from tests.patience import PATIENCE_S

TURN_S = 0.02
_UNIT = msgspec.json.encode("語" * (1 << 18)).replace("語".encode(), b"\\u8a9e")
_UNITS_A_TURN = 6
"""Decodings of `_UNIT` in 20 ms on a machine that takes 3.3 ms for one, the slowest on which the limit was measured."""


def turn_limit_s() -> float:
    """Return 20 ms, scaled up if this machine is currently slower because neighbors use caches and clock rate."""
    took = []
    for _ in range(5):
        begun_s = time.thread_time()
        msgspec.json.decode(_UNIT)
        took.append(time.thread_time() - begun_s)
    return max(TURN_S, _UNITS_A_TURN * statistics.median(took))


class LoopTime:
    """The longest callback of the loops so far. Mutable."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.total_s = 0.0


@contextmanager
def watched() -> Iterator[LoopTime]:
    """Measure each callback of the running asyncio loop until the block ends."""
    seen, run, loop = LoopTime(), asyncio.events.Handle._run, asyncio.get_running_loop()

    def measured(self: asyncio.Handle) -> None:
        if asyncio.get_running_loop() is not loop:
            run(self)
            return
        begun_s = time.thread_time()
        run(self)
        took_s = time.thread_time() - begun_s
        seen.total_s += took_s
        seen.longest_s = max(seen.longest_s, took_s)

    # A serving process keeps its start-up heap out of collections (settle_heap); here it holds thousands of tests.
    gc.collect()
    gc.freeze()
    asyncio.events.Handle._run = measured  # type: ignore[method-assign]
    try:
        yield seen
    finally:
        asyncio.events.Handle._run = run  # type: ignore[method-assign]
        gc.unfreeze()


FORM_START = b"--edge\r\n"
"""Bodies that begin so are forms with this boundary."""


async def post_from_thread(gateway: ServedGateway, way: str, body: bytes) -> tuple[int, bytes]:
    """Send the body without using time of the loop; return status and response."""

    def post() -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(gateway.url.removeprefix("http://"), timeout=PATIENCE_S)
        kind = "multipart/form-data; boundary=edge" if body.startswith(FORM_START) else "application/json"
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": kind}
        try:
            connection.request("POST", way, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    return await asyncio.to_thread(post)


@asynccontextmanager
async def engine_of_another_thread() -> AsyncIterator[str]:
    """Run an engine on a separate loop, so that its work is not measured; yield its address."""
    ready, over, url = threading.Event(), threading.Event(), [""]

    async def serve() -> None:
        async with ScriptedEngine() as engine:
            engine.scripts["/v1/audio/transcriptions"] = b'{"text":"hello"}'
            url[0] = engine.url
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    await asyncio.to_thread(ready.wait)
    try:
        yield url[0]
    finally:
        over.set()
        await asyncio.to_thread(thread.join)
