"""Shutdown of a serving process: a signal requests it, a second one forces it, and nothing delays it indefinitely."""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

from gateway.base.event_log import log_event

DRAIN_S = 120
"""Seconds for running requests to complete after SIGTERM, unless HEADWAY_DRAIN_S sets another time."""
LAST_STEPS_S = 4.5
"""Maximum seconds from the end of the drain to the end of the process, so that Ctrl-C ends the program within five
seconds.
"""
_CHECK_S = 0.1
_LOG_S = 0.5


class ProcessEnd:
    """SIGTERM drains for at most `drain_s`; SIGINT does not drain. A second signal ends the process immediately.

    A separate thread ends a process whose shutdown hangs. Mutable: the requested end, and the latest time at which the
    process ends. `reap` ends child processes without waiting.
    """

    def __init__(
        self,
        drain_s: float,
        reap: Callable[[], None] = lambda: None,
        *,
        exit_now: Callable[[int], object] = os._exit,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.asked = False
        self.status = 0
        """Exit status of the process."""
        self.why = ""
        self.drain_s = 0.0
        """Seconds for running requests to complete after the request to end."""
        self._patience_s = drain_s
        self._reap = reap
        self._exit_now = exit_now
        self._clock = clock
        self._until_s = 0.0

    def handle_signals(self) -> None:
        """Handle SIGINT and SIGTERM. Call it in the main thread."""
        for sign in (signal.SIGINT, signal.SIGTERM):
            signal.signal(sign, self._on_signal)

    def ask(self, why: str, *, drains: bool = True, status: int = 0) -> None:
        """Ask the process to end. It can be called from any thread, and only the first request counts."""
        if self.asked:
            return
        self.drain_s = self._patience_s if drains else 0.0
        self.status, self.why = status, why
        self._until_s = self._clock() + self.drain_s + LAST_STEPS_S
        # After the rest, which other threads read once it is set.
        self.asked = True
        threading.Thread(target=self._watch, name="end of the process", daemon=True).start()

    def drained(self) -> None:
        """Record that the drain is over and only the last steps remain."""
        self._until_s = min(self._until_s, self._clock() + LAST_STEPS_S)

    def at_once(self, why: str, status: int) -> None:
        """End the process here without further steps: children first, then this process."""
        self._reap()
        # The holder of the log's lock may be what hangs, so the log gets a thread and a moment; stderr always gets it.
        os.write(2, f"Headway ends immediately: {why}.\n".encode())
        teller = threading.Thread(
            target=log_event, args=("ended_at_once",), kwargs={"level": logging.CRITICAL, "why": why}, daemon=True
        )
        teller.start()
        teller.join(_LOG_S)
        self._exit_now(status)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self.asked:
            self.at_once(f"a second signal ({signal.Signals(number).name})", 128 + number)
        else:
            self.ask(signal.Signals(number).name, drains=number != signal.SIGINT)

    def _watch(self) -> None:
        # Not where the signal is handled: the thread that it interrupted may be in the middle of a log line.
        level = logging.ERROR if self.status else logging.INFO
        log_event("shutdown_begins", level=level, why=self.why, drain_s=self.drain_s)
        while self._clock() < self._until_s:
            time.sleep(_CHECK_S)
        # The stack of every thread shows what hung.
        faulthandler.dump_traceback(file=sys.__stderr__ or 2)
        self.at_once(f"the shutdown hung for {LAST_STEPS_S:g} s", 1)
