"""A TCP proxy between gateways that can delay, stall, reset, and cut connections, for tests and for `make run
REGIONS=3`.

Each link leads from one region to an address in another region. While no process listens at that address, the link does
not listen either, so that connections are refused as without the proxy.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from simulator.parent_death import die_with_parent

_CHUNK = 1 << 16
_CHECK_S = 0.1
_CONNECT_S = 1.0


@dataclass(eq=False)
class Direction:
    """The bytes of all connections in one direction. Mutable: their delay, and whether they are stalled."""

    delay_s: float = 0.0
    stalled: bool = False
    """Whether bytes are stalled. None are lost, as on a network that retransmits."""
    _moves: asyncio.Event = field(default_factory=asyncio.Event)

    def stall(self, stalled: bool) -> None:
        """Stall bytes, or release stalled bytes."""
        self.stalled = stalled
        (self._moves.clear if stalled else self._moves.set)()

    async def pass_one(self, due_s: float) -> None:
        """Return when bytes that arrived `delay_s` before `due_s` can pass."""
        await asyncio.sleep(max(0.0, due_s - asyncio.get_running_loop().time()))
        # It may be stalled again before this task runs.
        while self.stalled:
            await self._moves.wait()


class FaultyLink:
    """One listening port and its target address. Mutable state: both directions and the open connections."""

    def __init__(self, port: int, target: str, delay_s: float = 0.0) -> None:
        host, _, target_port = target.rpartition(":")
        self.port = port
        self._target = host, int(target_port)
        self.there, self.back = Direction(delay_s), Direction(delay_s)
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._watch: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Listen while a process listens at the target."""
        self._watch = asyncio.create_task(self._follow(), name=f"link on {self.port}")

    async def stop(self) -> None:
        """Reject new connections and end open ones."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        self._close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def reset(self) -> None:
        """Reset all open connections."""
        for writer in list(self._open):
            writer.transport.abort()

    async def _follow(self) -> None:
        while True:
            listens = await self._target_listens()
            if listens and self._server is None:
                self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
            elif not listens:
                self._close()
            await asyncio.sleep(_CHECK_S)

    async def _target_listens(self) -> bool:
        try:
            async with asyncio.timeout(_CONNECT_S):
                _, writer = await asyncio.open_connection(*self._target)
        except ConnectionRefusedError:
            return False
        except (OSError, TimeoutError):
            # A slow target is not gone.
            return self._server is not None
        writer.close()
        writer.transport.abort()
        return True

    def _close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
            self.reset()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
        ends, pumps = [writer], list[asyncio.Task[None]]()
        self._open.add(writer)
        # The link stops, or its target does not listen: a server's handler must end cleanly, and leave nothing open.
        with contextlib.suppress(asyncio.CancelledError, OSError):
            try:
                behind_reader, behind_writer = await asyncio.open_connection(*self._target)
                ends.append(behind_writer)
                self._open.add(behind_writer)
                pumps.append(asyncio.create_task(_pump(reader, behind_writer, self.there)))
                pumps.append(asyncio.create_task(_pump(behind_reader, writer, self.back)))
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for end in ends:
                    end.close()
                    end.transport.abort()
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
                self._open.difference_update(ends)
                if task is not None:
                    self._tasks.discard(task)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction) -> None:
    """Forward bytes in order with the direction's delay; return at the end of the stream."""
    loop = asyncio.get_running_loop()
    # Bounded, so that a stalled direction holds up its sender as a full TCP window would.
    waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(64)

    async def send() -> None:
        while True:
            came_s, data = await waiting.get()
            await direction.pass_one(came_s + direction.delay_s)
            if not data:
                return
            writer.write(data)
            await writer.drain()

    sending = asyncio.create_task(send())
    try:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(_CHUNK):
                await waiting.put((loop.time(), data))
        # The end passes in order and with the same delay.
        await waiting.put((loop.time(), b""))
        with contextlib.suppress(ConnectionError):
            await sending
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def _serve(links: Sequence[FaultyLink]) -> None:
    for link in links:
        link.start()
    await asyncio.get_running_loop().create_future()


def main() -> int:
    """Serve links with a fixed delay until the parent process ends."""
    parser = argparse.ArgumentParser(prog="python -m simulator.fault_proxy", description=__doc__)
    parser.add_argument("links", nargs="+", metavar="PORT=HOST:PORT/DELAY_MS")
    parser.add_argument("--parent-pid", type=int, required=True)
    options = parser.parse_args()
    die_with_parent(options.parent_pid)
    links = []
    for text in options.links:
        port, _, rest = text.partition("=")
        target, _, delay_ms = rest.partition("/")
        links.append(FaultyLink(int(port), target, float(delay_ms) / 1000))
    asyncio.run(_serve(links))
    return 0


if __name__ == "__main__":
    sys.exit(main())
