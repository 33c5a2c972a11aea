"""Receives a request's body within size and time limits, before code behind the edge can buffer it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable

from gateway.base.asgi_types import Message, Receive
from gateway.server.http.openai_error import ApiError

SWEEP_S = 0.5
FREE_BYTES = 256 * 1024


class RejectedAtEdgeError(ApiError):
    """The request breaks a rule of the edge. The edge answers and counts `code`, whichever code was reading."""


class BodyWatch:
    """Ends body reads that stall. One sweep checks all reads, so that no body needs a timer.

    A read can wait `stall_s` for its next bytes. The complete body can take `stall_s` plus its time at
    `min_bytes_per_s`. Belongs to one event loop.
    """

    def __init__(self, stall_s: float, min_bytes_per_s: float) -> None:
        self.stall_s = stall_s
        self.min_bytes_per_s = min_bytes_per_s
        self._reads: set[GuardedReceive] = set()
        self._sweep: asyncio.TimerHandle | None = None

    def enter(self, read: GuardedReceive) -> None:
        """Start to watch a read that can wait."""
        self._reads.add(read)
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(SWEEP_S, self._run)

    def leave(self, read: GuardedReceive) -> None:
        """Stop watching a read."""
        self._reads.discard(read)

    def _run(self) -> None:
        loop = asyncio.get_running_loop()
        self._expire(list(self._reads), loop.time())
        self._sweep = loop.call_later(SWEEP_S, self._run) if self._reads else None

    def _expire(self, reads: Iterable[GuardedReceive], now: float) -> None:
        for read in reads:
            if now >= read.deadline(now):
                self._reads.discard(read)
                read.expire()


class BodyRoom:
    """Memory for the bodies of running requests. Mutable: the size in use; used on one event loop's thread.

    Only the part of a body beyond FREE_BYTES counts. The connection limit bounds the memory below it.
    """

    def __init__(self, most: int) -> None:
        self._left = most

    def take(self, size: int) -> None:
        """Reserve this many bytes; raise RejectedAtEdgeError if fewer are free."""
        if size > self._left:
            text = "Running requests use all of this gateway's memory for bodies; retry."
            raise RejectedAtEdgeError(503, text, "bodies_full", retry_after_s=1.0)
        self._left -= size

    def give_back(self, size: int) -> None:
        """Release these bytes."""
        self._left += size


class GuardedReceive:
    """An ASGI `receive` that counts body bytes and raises RejectedAtEdgeError (413, or 408 through the watch).

    With a `room`, it raises 503 if the body does not fit; call `release` when the request ends.
    """

    received = 0
    taken = 0
    done = False
    expired = False
    _task: asyncio.Task[object] | None = None
    _first_seen: float | None = None
    _last_seen: float | None = None

    def __init__(self, receive: Receive, limit: int, watch: BodyWatch, room: BodyRoom | None = None) -> None:
        self._receive = receive
        self._limit = limit
        self._watch = watch
        self._room = room

    def __call__(self) -> Awaitable[Message]:
        """Return an awaitable of the next ASGI message."""
        # After the body, only the end of the connection is awaited, which has no time.
        return self._receive() if self.done else self._guarded()

    async def _guarded(self) -> Message:
        self._task = asyncio.current_task()
        self._watch.enter(self)
        try:
            message = await self._receive()
        except asyncio.CancelledError:
            if not self.expired or self._task is None:
                raise
            # The watch cancelled it: a timeout or task group around the handler must not count that as its own.
            self._task.uncancel()
            text = "The body arrived too slowly."
            raise RejectedAtEdgeError(408, text, "body_timeout") from None
        finally:
            self._watch.leave(self)
            self._task = None
        if message.get("more_body", False):
            self._last_seen = None
        else:
            self.done = True
        self.received += len(message.get("body", b""))
        if self.received > self._limit:
            raise too_large(self._limit)
        self.hold(self.received)
        return message

    def hold(self, size: int) -> None:
        """Reserve room for a body that has grown to this size."""
        more = size - FREE_BYTES - self.taken
        if more > 0 and self._room is not None:
            self._room.take(more)
            self.taken += more

    def release(self) -> None:
        """Release the room at the end of the request."""
        if self._room is not None:
            self._room.give_back(self.taken)
            self.taken = 0

    def deadline(self, now: float) -> float:
        """Return the loop time at which this read times out, counted from the first sweep that saw it."""
        if self._first_seen is None:
            self._first_seen = now
        if self._last_seen is None:
            self._last_seen = now
        whole = self._first_seen + self._watch.stall_s + self.received / self._watch.min_bytes_per_s
        # A read is first seen up to one sweep late, and ends up to one late.
        return min(self._last_seen + self._watch.stall_s, whole) - 2 * SWEEP_S

    def expire(self) -> None:
        """Wake the reader with status 408."""
        if self._task is not None:
            self.expired = True
            self._task.cancel()


def too_large(limit: int) -> RejectedAtEdgeError:
    """Return the 413 for a body over `limit` bytes."""
    return RejectedAtEdgeError(413, f"The body is larger than the {limit} bytes allowed here.", "body_too_large")
