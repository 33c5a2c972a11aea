"""uvicorn's server with an end that drains."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from time import monotonic

import uvicorn
from typing_extensions import override

from gateway.process.drain import Drain
from gateway.process.shutdown import ProcessEnd

GRACE_S = 3.0
"""A draining server listens at least this long, so that a balancer reads 503 from /ready before connections fail."""
CUT_OFF_S = 1
"""Connections have this long to take their last bytes."""


class DrainingServer(uvicorn.Server):
    """Serves until the process is asked to end, then drains; signals are the ProcessEnd's, not uvicorn's.

    It listens until the drain is over: callers report how their requests went, and operators watch. Mutable state: when
    the drain began. The config's `timeout_graceful_shutdown` should be CUT_OFF_S.
    """

    def __init__(
        self, config: uvicorn.Config, drain: Drain, end: ProcessEnd, clock: Callable[[], float] = monotonic
    ) -> None:
        super().__init__(config)
        self._drain = drain
        self._end = end
        self._clock = clock
        self._began_s = 0.0

    @override
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    @override
    async def on_tick(self, counter: int) -> bool:
        """Return whether to stop serving; uvicorn asks ten times a second."""
        return await super().on_tick(counter) or (self._end.asked and self._is_drained(self._clock()))

    @override
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Cut off the requests under way and end the server."""
        self._drain.cut_off()
        self._end.drained()
        await super().shutdown(sockets)

    def _is_drained(self, now: float) -> bool:
        if not self._drain.begun:
            self._drain.begin()
            self._began_s = now
        waited_s, limit_s = now - self._began_s, self._end.drain_s
        return waited_s >= limit_s or (waited_s >= GRACE_S and not self._drain.under_way)
