"""Sends the answers of one turn of the event loop together.

Each send enters the kernel and wakes the client, which evicts the next decision's data from the processor's caches: a
decision among decisions costs two thirds of one among sends. So answers computed in the same turn are held until its
end, or until there are several of them; a single one goes out in the same turn.
"""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary

MAX_HELD = 8
"""Number of answers that go out at once: the first of them has then waited for the decisions about seven more."""


class WriteCoalescer:
    """Holds answers that are ready and not yet sent, in their order. Mutable; belongs to one event loop's thread."""

    def __init__(self) -> None:
        self._held: list[tuple[asyncio.WriteTransport, bytes]] = []
        self._scheduled = False

    def add(self, loop: asyncio.AbstractEventLoop, transport: asyncio.WriteTransport, data: bytes) -> None:
        """Send `data` in this turn of the loop; data written to the transport before `send` goes out first."""
        held = self._held
        held.append((transport, data))
        if len(held) >= MAX_HELD:
            self.send()
        elif not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._end_turn)

    def send(self) -> None:
        """Send all held answers now; those of closed connections are dropped."""
        held, self._held = self._held, []
        for transport, data in held:
            if not transport.is_closing():
                transport.write(data)

    def _end_turn(self) -> None:
        self._scheduled = False
        self.send()


def coalescer_of(loop: asyncio.AbstractEventLoop) -> WriteCoalescer:
    """Return the coalescer of this loop, which all connections that it serves share."""
    return _coalescers.setdefault(loop, WriteCoalescer())


_coalescers: WeakKeyDictionary[asyncio.AbstractEventLoop, WriteCoalescer] = WeakKeyDictionary()
