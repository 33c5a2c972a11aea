"""Detects a late event loop, so that its delay is not attributed to an engine.

A ticker is scheduled every `TICK_S`. While it is overdue, the loop was busy or did not run: it could read no response,
and its timeouts prove nothing. All times are monotonic seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

TICK_S = 0.1
LAPSE_S = 0.1
"""A tick this late is a lapse. Smaller delays are normal for a busy loop."""
LOST_SHARE = 0.2
"""If the loop lapsed for more than this share of a wait, the wait is no evidence."""
WINDOW_S = 5.0
LATE_S = LOST_SHARE * WINDOW_S
"""A loop that lost this much of the last `WINDOW_S` is late, until it has lost nothing for `WINDOW_S`."""
SUSTAINED_LAG_S = 0.25
SUSTAINED_S = 1.0
"""The lag is sustained if every tick in this many seconds was late by `SUSTAINED_LAG_S`: load, not a single pause."""
MAX_RETRY_S = 30.0
MAX_LAPSES = 1024


class LoopLag:
    """The time that one event loop has lost. Mutable: all of it, read and changed only on that loop's thread.

    `note` receives the lag of each tick in seconds.
    """

    def __init__(self, note: Callable[[float], None] = lambda _lag_s: None) -> None:
        self.late = False
        """The loop has been losing time since `since_s`, in `lapses` lapses that lost `away_s` in total."""
        self.since_s = 0.0
        self.lapses = 0
        self.away_s = 0.0
        self._note = note
        self._due_s: float | None = None
        self._lapses: deque[tuple[float, float]] = deque(maxlen=MAX_LAPSES)
        """Start and end of each lapse, in order."""
        self._lag_s = 0.0
        self._sustained_since_s: float | None = None

    async def run(self) -> None:
        """Tick until cancelled."""
        while True:
            self.tick(time.monotonic())
            await asyncio.sleep(TICK_S)

    def tick(self, now: float) -> None:
        """Record that the loop ran. The next tick is due within `TICK_S`."""
        due_s, self._due_s = self._due_s, now + TICK_S
        lag_s = self._lag_s = max(0.0, now - due_s) if due_s is not None else 0.0
        self._note(lag_s)
        if lag_s >= LAPSE_S:
            self._lapses.append((now - lag_s, now))
            self.lapses += 1
            self.away_s += lag_s
        if lag_s < SUSTAINED_LAG_S:
            self._sustained_since_s = None
        elif self._sustained_since_s is None:
            self._sustained_since_s = now
        self._judge(now)

    def lost_s(self, since_s: float, now: float) -> float:
        """Return the seconds that the loop has lost since `since_s`, including a current lapse."""
        lost_s = 0.0
        if self._due_s is not None and now - self._due_s >= LAPSE_S:
            lost_s = now - max(self._due_s, since_s)
        for begun_s, ended_s in reversed(self._lapses):
            if ended_s <= since_s:
                break
            lost_s += ended_s - max(begun_s, since_s)
        return lost_s

    def vouches(self, since_s: float, now: float) -> bool:
        """Return whether the loop ran enough to receive a response, so that a missing response is evidence."""
        return self.lost_s(since_s, now) <= LOST_SHARE * (now - since_s)

    def retry_after_s(self, now: float) -> float | None:
        """Return the seconds until a retry while the loop cannot keep up, None while it can."""
        since_s = self._sustained_since_s
        if not self.late or since_s is None or now - since_s < SUSTAINED_S:
            return None
        # Twice the lag: the loop's backlog drains first, and the requests that it delayed precede new ones.
        return min(max(1.0, 2 * self._lag_s), MAX_RETRY_S)

    @property
    def behind(self) -> bool:
        """Return whether the loop keeps losing time, so that work that no request waits for should be postponed."""
        return self.late and self._sustained_since_s is not None

    def _judge(self, now: float) -> None:
        lost_s = self.lost_s(now - WINDOW_S, now)
        if self.late:
            self.late = lost_s > 0.0
        elif lost_s >= LATE_S:
            self.late = True
            recent = [(begun_s, ended_s) for begun_s, ended_s in self._lapses if ended_s > now - WINDOW_S]
            self.since_s = recent[0][0]
            self.lapses = len(recent)
            self.away_s = sum(ended_s - begun_s for begun_s, ended_s in recent)
