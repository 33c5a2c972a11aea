"""uvicorn's server with a drain at shutdown."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from time import monotonic

import uvicorn
from typing_extensions import override

from gateway.server.process.drain import Drain
from gateway.server.process.shutdown import ProcessEnd

GRACE_S = 3.0
"""Minimum seconds for which a draining server listens, so that a load balancer reads 503 from /ready before connections
fail.
"""
CUT_OFF_S = 1
"""Seconds for connections to receive their last bytes."""


class DrainingServer(uvicorn.Server):
    """Serves until the process is asked to end, then drains. ProcessEnd handles the signals, not uvicorn.

    It listens until the drain is over, for callers' reports on their requests and for operators. Mutable: the start
    time of the drain. Set the config's `timeout_graceful_shutdown` to CUT_OFF_S.
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
        """Return whether to stop serving. uvicorn calls this ten times a second."""
        return await super().on_tick(counter) or (self._end.asked and self._is_drained(self._clock()))

    @override
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Cut off the running requests and end the server."""
        self._drain.cut_off()
        self._end.drained()
        await super().shutdown(sockets)

    def _is_drained(self, now: float) -> bool:
        if not self._drain.begun:
            self._drain.begin()
            self._began_s = now
        waited_s, limit_s = now - self._began_s, self._end.drain_s
        return waited_s >= limit_s or (waited_s >= GRACE_S and not self._drain.under_way)
