"""Closed-loop clients: each runs one program at a time, and thinks for some time after a response."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from simulator.regions.programs import Program
from simulator.regions.region_request import RegionRequest
from simulator.regions.workloads import ProgramSource
from simulator.virtual_clock import VirtualClock

START_S = 1.0
"""Seconds within which all clients start."""


class RegionClient:
    """One client. Mutable: its program, the number of programs begun, its requests in flight, and `_retired`."""

    def __init__(
        self,
        region: str,
        number: int,
        index: int,
        source: ProgramSource,
        clock: VirtualClock,
        send: Callable[[RegionRequest], None],
        *,
        think_s: float,
        rng: Random,
        tenant: str = "",
    ) -> None:
        self.region, self.number, self.index, self.tenant = region, number, index, tenant
        self._source, self._clock, self._send = source, clock, send
        self._think_s, self._rng = think_s, rng
        self._program: Program | None = None
        self._begun = 0
        self._in_flight = 0
        self._retired = False

    def start(self) -> None:
        """Schedule the first request."""
        self._clock.after(self._rng.random() * START_S, self._begin)

    def answered(self, request: RegionRequest) -> None:
        """Process a complete response: send the requests that follow it, or begin the next program."""
        request.ended_s = self._clock.now
        following = self._program.following(request) if self._program is not None else []
        if following:
            self._in_flight += len(following)
            pause_s = self._pause() if self._program is not None and self._program.pauses else 0.0
            self._clock.after(pause_s, self._send_all, following)
        self._ended()

    def rejected(self, request: RegionRequest) -> None:
        """Process an error: nothing follows the request, and it stays unanswered."""
        self._ended()

    def _ended(self) -> None:
        self._in_flight -= 1
        if self._in_flight == 0:
            self._clock.after(self._pause(), self._begin)

    def retire(self) -> None:
        """Finish the current program and begin no other one."""
        self._retired = True

    def _pause(self) -> float:
        return self._rng.expovariate(1) * self._think_s

    def _begin(self) -> None:
        if self._retired:
            return
        self._program = self._source.program(self.region, self.number, self._begun)
        self._begun += 1
        self._in_flight = 1
        self._send_all([self._program.first()])

    def _send_all(self, requests: list[RegionRequest]) -> None:
        for request in requests:
            request.sent_s, request.client, request.tenant = self._clock.now, self.index, self.tenant
            self._send(request)
