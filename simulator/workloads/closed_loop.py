"""Closed-loop clients: each sends its next request some time after its last one ended, like users and agents."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush

from msgspec.structs import replace

from simulator.workloads.arrivals import Arrival


class ClosedLoop:
    """A source of arrivals (ArrivalSource) whose load depends on the speed of responses.

    Each client works through one session after another and sends the session's requests in order. A request without a
    session is a session with one request. Think times are exponential. Mutable state: `_sessions` (not assigned yet),
    `_left` (unsent requests of each client's session), `_due` (heap of time and client), and `_sender` (the client of
    each unanswered request).
    """

    def __init__(self, arrivals: Sequence[Arrival], *, clients: int, think_s: float, seed: int) -> None:
        if clients < 1 or think_s < 0:
            raise ValueError(f"{clients} clients that think for {think_s} s make no load")
        self._rng = random.Random(seed)
        self._think_s = think_s
        self._sessions = _sessions(arrivals)
        self._left: list[deque[Arrival]] = [deque() for _ in range(clients)]
        self._due: list[tuple[float, int]] = []
        self._sender: dict[str, int] = {}
        for client in range(clients):
            self._think(client, 0.0)

    def next_time(self) -> float | None:
        """Return when the next request arrives (seconds); None while every client is waiting or done."""
        return self._due[0][0] if self._due else None

    @property
    def over(self) -> bool:
        """Whether the clients have sent all requests."""
        return not self._sessions and not any(self._left)

    def take(self) -> Arrival:
        """Return the next request, which arrives when its client sends it; raise IndexError if none is due."""
        at_s, client = heappop(self._due)
        arrival = self._left[client].popleft()
        self._sender[arrival.request.request_id] = client
        return replace(arrival, request=replace(arrival.request, arrived_s=at_s))

    def ended(self, request_id: str, now: float) -> None:
        """Schedule the next request of the client whose request finished, failed or was rejected."""
        client = self._sender.pop(request_id, None)
        if client is not None:
            self._think(client, now)

    def _think(self, client: int, now: float) -> None:
        if not self._left[client]:
            if not self._sessions:
                return
            self._left[client] = self._sessions.popleft()
        # Scaled instead of drawn at a rate of 1 / think_s, which may be 0.
        heappush(self._due, (now + self._rng.expovariate(1) * self._think_s, client))


def _sessions(arrivals: Sequence[Arrival]) -> deque[deque[Arrival]]:
    sessions: dict[str, deque[Arrival]] = {}
    for arrival in arrivals:
        request = arrival.request
        name = f"session {request.session_id}" if request.session_id else f"request {request.request_id}"
        sessions.setdefault(name, deque()).append(arrival)
    return deque(sessions.values())
