"""One browser's connection: a mailbox of length one between the feed's thread and the viewer's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from web.live.scope import Scope

KEYFRAME_EVERY_S = 1.0
"""Minimum seconds between requested keyframes; a keyframe is hundreds of times larger than its request."""


class Viewer:
    """Holds the newest frame for one viewer; an unread frame is replaced, never queued.

    `offer` can be called from any thread, everything else only on the event loop that created the viewer. `clock`
    returns monotonic seconds.
    """

    def __init__(
        self,
        scope: Scope = None,
        clock: Callable[[], float] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.scope = scope
        self._loop = asyncio.get_running_loop()
        self._clock, self._sleep = clock or self._loop.time, sleep
        self._keyframe_due_s = self._clock()
        self._frame: bytes | None = None
        self._wants_keyframe = True
        self._keyframe_seq = -1
        self._paused = False
        self._news = asyncio.Event()
        self._news.set()

    def offer(self, seq: int, frame: bytes) -> None:
        """Put the frame into the mailbox; it replaces an unread one."""
        # While the process ends, call_soon_threadsafe raises on a closed loop.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._take, seq, frame)

    def ask_keyframe(self) -> None:
        """Make the next frame a keyframe, at most one per KEYFRAME_EVERY_S. Repeated requests count once."""
        self._wants_keyframe = True
        self._news.set()

    def pause(self) -> None:
        """Send nothing until resume(), used for a tab in the background."""
        self._paused = True

    def resume(self) -> None:
        """Continue sending, starting with a keyframe."""
        self._paused = False
        self.ask_keyframe()

    async def next_frame(self) -> bytes | None:
        """Wait for a frame and return it; None means that the viewer needs a keyframe."""
        while True:
            await self._news.wait()
            self._news.clear()
            if self._paused:
                continue
            if self._wants_keyframe:
                if (wait_s := self._keyframe_due_s - self._clock()) > 0:
                    await self._sleep(wait_s)
                    self._news.set()
                    continue
                self._keyframe_due_s = self._clock() + KEYFRAME_EVERY_S
                self._wants_keyframe = False
                self._frame = None
                return None
            frame, self._frame = self._frame, None
            if frame is not None:
                return frame

    def keyframe_sent(self, seq: int) -> None:
        """Record that the viewer has the state of `seq`; older frames in transit are dropped."""
        self._keyframe_seq = seq

    def _take(self, seq: int, frame: bytes) -> None:
        # The keyframe that was sent, or that will be, holds the frame's state.
        if seq <= self._keyframe_seq or self._paused or self._wants_keyframe:
            return
        self._frame = frame
        self._news.set()
