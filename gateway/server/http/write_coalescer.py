"""Sends the responses of one event loop step together.

Each send enters the kernel and wakes the client, which evicts the next decision's data from the CPU caches: a decision
between decisions costs two thirds of a decision between sends. Responses computed in the same step are therefore held
until its end, or until MAX_HELD of them are ready. A single response is sent in the same step.
"""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary

MAX_HELD = 8
"""Number of responses that are sent at once. The first one has then waited for about seven decisions."""


class WriteCoalescer:
    """Holds responses that are ready but not sent, in order. Mutable; used on one event loop's thread."""

    def __init__(self) -> None:
        self._held: list[tuple[asyncio.WriteTransport, bytes]] = []
        self._scheduled = False

    def add(self, loop: asyncio.AbstractEventLoop, transport: asyncio.WriteTransport, data: bytes) -> None:
        """Send `data` in this step of the loop, after data written to the transport before `send`."""
        held = self._held
        held.append((transport, data))
        if len(held) >= MAX_HELD:
            self.send()
        elif not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._end_turn)

    def send(self) -> None:
        """Send all held responses now. Those of closed connections are dropped."""
        held, self._held = self._held, []
        for transport, data in held:
            if not transport.is_closing():
                transport.write(data)

    def _end_turn(self) -> None:
        self._scheduled = False
        self.send()


def coalescer_of(loop: asyncio.AbstractEventLoop) -> WriteCoalescer:
    """Return the write coalescer shared by all connections of this loop."""
    return _coalescers.setdefault(loop, WriteCoalescer())


_coalescers: WeakKeyDictionary[asyncio.AbstractEventLoop, WriteCoalescer] = WeakKeyDictionary()
