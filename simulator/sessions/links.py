"""Links that carry KV caches in chunks within their bandwidth; loads for requests precede prefetches."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from simulator.virtual_clock import VirtualClock

_CHUNK_BYTES = 64e6
_MAX_CHUNKS = 16


class OverbookedSessionLinkError(Exception):
    """A link has carried more bytes than its bandwidth allows."""


class SessionLink:
    """One link. It has two classes, urgent first, each FIFO by transfer; a chunk being carried is not preempted.

    Mutable state: `carried_bytes`, `booked` (bytes booked but not yet carried, by urgency), `_queues`, `_busy`.
    """

    __slots__ = ("_busy", "_clock", "_queues", "booked", "bytes_per_s", "carried_bytes", "name")

    def __init__(self, name: str, bytes_per_s: float, clock: VirtualClock) -> None:
        self.name = name
        self.bytes_per_s = bytes_per_s
        self.carried_bytes = 0.0
        self.booked = [0.0, 0.0]
        self._clock = clock
        self._queues: tuple[dict[SessionTransfer, int], dict[SessionTransfer, int]] = ({}, {})
        self._busy = False

    def wait_s(self, urgent: bool) -> float:
        """Return the seconds that a new transfer would wait for the booked bytes."""
        ahead = self.booked[True] + (0.0 if urgent else self.booked[False])
        return ahead / self.bytes_per_s

    def offer(self, transfer: SessionTransfer, chunks: int) -> None:
        """Queue chunks of a transfer that are ready to send."""
        queue = self._queues[transfer.urgent]
        queue[transfer] = queue.get(transfer, 0) + chunks
        if not self._busy:
            self._carry_next()

    def withdraw(self, transfer: SessionTransfer) -> int:
        """Remove a transfer's queued chunks and return their number."""
        return self._queues[transfer.urgent].pop(transfer, 0)

    def check(self) -> None:
        """Raise if the link has carried more than its bandwidth allows."""
        if self.carried_bytes > self.bytes_per_s * self._clock.now * (1 + 1e-9) + 1.0:
            raise OverbookedSessionLinkError(f"{self.name}: {self.carried_bytes:.0f} bytes by {self._clock.now:.3f} s")

    def _carry_next(self) -> None:
        for urgent in (True, False):
            queue = self._queues[urgent]
            if queue:
                transfer = next(iter(queue))
                queue[transfer] -= 1
                if not queue[transfer]:
                    del queue[transfer]
                self._busy = True
                self._clock.at(
                    self._clock.now + transfer.chunk_bytes / self.bytes_per_s, partial(self._carried, transfer)
                )
                return

    def _carried(self, transfer: SessionTransfer) -> None:
        self._busy = False
        self.carried_bytes += transfer.chunk_bytes
        self.check()
        transfer.passed(self)
        if not self._busy:
            self._carry_next()


class SessionTransfer:
    """Bytes in transfer over one or more links, split into chunks so that the links work in parallel.

    A transfer that follows another one starts with the chunks that have already arrived (`ready_share`), and gets each
    further chunk when the other transfer has it. Mutable state: `urgent`, `landed`, `cancelled`, `_passed`,
    `_released`, `followers`.
    """

    __slots__ = (
        "_after", "_on_chunk", "_passed", "_ready", "_released", "cancelled", "chunk_bytes", "chunks", "followers",
        "landed", "links", "urgent",
    )  # fmt: skip

    def __init__(
        self,
        links: Sequence[SessionLink],
        size_bytes: float,
        on_chunk: Callable[[SessionTransfer], None],
        *,
        urgent: bool,
        after: SessionTransfer | None = None,
        ready_share: float = 0.0,
    ) -> None:
        self.links = links
        self.urgent = urgent
        self.chunks = min(_MAX_CHUNKS, max(1, math.ceil(size_bytes / _CHUNK_BYTES)))
        self.chunk_bytes = size_bytes / self.chunks
        self.landed = 0
        self.cancelled = False
        self.followers: list[SessionTransfer] = []
        self._on_chunk = on_chunk
        self._after = after
        self._ready = int(self.chunks * ready_share) if after is not None else self.chunks
        self._released = 0
        self._passed = [0] * len(links)

    @property
    def done(self) -> bool:
        """Whether all chunks have arrived."""
        return self.landed >= self.chunks

    @property
    def all_released(self) -> bool:
        """Whether the preceding transfer has delivered all chunks."""
        return self._released >= self.chunks

    @property
    def left_bytes(self) -> float:
        """Number of bytes that have not arrived."""
        return (self.chunks - self.landed) * self.chunk_bytes

    def start(self) -> SessionTransfer:
        """Book the links and queue the chunks that are ready."""
        for link in self.links:
            link.booked[self.urgent] += self.chunks * self.chunk_bytes
        if self._after is not None:
            self._after.followers.append(self)
        self.release()
        return self

    def release(self) -> None:
        """Queue the chunks that the preceding transfer has delivered."""
        there = self._ready
        if self._after is not None:
            there += (self.chunks - self._ready) * self._after.landed // self._after.chunks
        if there > self._released and not self.cancelled:
            more, self._released = there - self._released, there
            self.links[0].offer(self, more)

    def passed(self, link: SessionLink) -> None:
        """Record that a link has carried a chunk: queue it on the next link, or count it as arrived."""
        if self.cancelled:
            return
        stage = self.links.index(link)
        self._passed[stage] += 1
        link.booked[self.urgent] -= self.chunk_bytes
        if stage + 1 < len(self.links):
            self.links[stage + 1].offer(self, 1)
            return
        self.landed += 1
        for follower in self.followers:
            follower.release()
        self._on_chunk(self)

    def promote(self) -> None:
        """Make a prefetch as urgent as a request's load, because its request has arrived."""
        if self.urgent or self.done or self.cancelled:
            return
        queued = [link.withdraw(self) for link in self.links]
        self._book(-1)
        self.urgent = True
        self._book(1)
        for link, chunks in zip(self.links, queued, strict=True):
            if chunks:
                link.offer(self, chunks)

    def cancel(self) -> None:
        """Cancel the transfer. A chunk being carried still uses the link."""
        if not self.done and not self.cancelled:
            for link in self.links:
                link.withdraw(self)
            self._book(-1)
            self.cancelled = True

    def _book(self, sign: int) -> None:
        for link, passed in zip(self.links, self._passed, strict=True):
            link.booked[self.urgent] += sign * (self.chunks - passed) * self.chunk_bytes
