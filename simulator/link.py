"""Links under the virtual clock: bytes booked one after another, or carried chunk by chunk for queues of transfers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from simulator.virtual_clock import VirtualClock

_CHUNK_BYTES = 64e6
_MAX_CHUNKS = 16


class OverbookedLinkError(AssertionError):
    """A link has carried more bytes than its bandwidth allows."""


class Link:
    """One direction of a link. Transfers run one after another within its bandwidth; each takes its latency more.

    Without a bandwidth, the link only delays. Mutable: `carried_bytes`, and `free_at`, when all booked bytes have been
    carried (seconds).
    """

    __slots__ = ("bytes_per_s", "carried_bytes", "free_at", "latency_s")

    def __init__(self, bytes_per_s: float = math.inf, latency_s: float = 0.0) -> None:
        self.bytes_per_s, self.latency_s = bytes_per_s, latency_s
        self.carried_bytes = self.free_at = 0.0

    def carry(self, size: float, now: float) -> float:
        """Book `size` bytes; return the time in seconds when the last one arrives."""
        self.free_at = max(now, self.free_at) + size / self.bytes_per_s
        self.carried_bytes += size
        self.check()
        return self.free_at + self.latency_s

    def bytes_within(self, now: float, seconds: float) -> float:
        """Return how many more bytes could arrive within `seconds` from now."""
        return max(0.0, now + seconds - self.latency_s - max(now, self.free_at)) * self.bytes_per_s

    def check(self) -> None:
        """Raise OverbookedLinkError if more bytes were carried than bandwidth × time."""
        # Rounding adds up over many transfers.
        if self.carried_bytes > self.bytes_per_s * self.free_at * (1 + 1e-9) + 1.0:
            raise OverbookedLinkError(f"{self.carried_bytes:.0f} bytes in {self.free_at:.3f} s")


class QueuedLink(Link):
    """A link that carries transfers chunk by chunk: urgent ones first, each class FIFO by transfer.

    A chunk being carried is not preempted. Mutable besides the link's state: `booked` (bytes booked but not yet
    carried, by urgency), `_queues`, `_busy`.
    """

    __slots__ = ("_busy", "_clock", "_queues", "booked")

    def __init__(self, bytes_per_s: float, clock: VirtualClock) -> None:
        super().__init__(bytes_per_s)
        self.booked = [0.0, 0.0]
        self._clock = clock
        self._queues: tuple[dict[Transfer, int], dict[Transfer, int]] = ({}, {})
        self._busy = False

    def offer(self, transfer: Transfer, chunks: int) -> None:
        """Queue chunks of a transfer that are ready to send."""
        queue = self._queues[transfer.urgent]
        queue[transfer] = queue.get(transfer, 0) + chunks
        if not self._busy:
            self._carry_next()

    def withdraw(self, transfer: Transfer) -> int:
        """Remove a transfer's queued chunks and return their number."""
        return self._queues[transfer.urgent].pop(transfer, 0)

    def _carry_next(self) -> None:
        for urgent in (True, False):
            queue = self._queues[urgent]
            if queue:
                transfer = next(iter(queue))
                queue[transfer] -= 1
                if not queue[transfer]:
                    del queue[transfer]
                self._busy = True
                self.free_at = self._clock.now + transfer.chunk_bytes / self.bytes_per_s
                self._clock.at(self.free_at, self._carried, transfer)
                return

    def _carried(self, transfer: Transfer) -> None:
        self._busy = False
        self.carried_bytes += transfer.chunk_bytes
        self.check()
        transfer.passed(self)
        if not self._busy:
            self._carry_next()


class Transfer:
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
        links: Sequence[QueuedLink],
        size_bytes: float,
        on_chunk: Callable[[Transfer], None],
        *,
        urgent: bool,
        after: Transfer | None = None,
        ready_share: float = 0.0,
    ) -> None:
        self.links = links
        self.urgent = urgent
        self.chunks = min(_MAX_CHUNKS, max(1, math.ceil(size_bytes / _CHUNK_BYTES)))
        self.chunk_bytes = size_bytes / self.chunks
        self.landed = 0
        self.cancelled = False
        self.followers: list[Transfer] = []
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

    def start(self) -> Transfer:
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

    def passed(self, link: QueuedLink) -> None:
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
