"""Requests whose callers receive an engine and never report the result.

A reservation without an end lasts until it expires. Until then the engine appears more and more loaded, is avoided, and
finally appears unhealthy. A caller is therefore trusted to report its requests only after it has reported one. Before
that, its requests are assumed to end at an estimated time, and nothing is learned from them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

from gateway.pools.pool.recent_decisions import DecisionRecord
from routing.policy.policy_document import RoutingPolicy
from routing.values.inference_request import InferenceRequest

REPORTED_S = 600.0
"""Seconds after its last report during which a key counts as reporting."""
GRACE_S = 10.0
"""Seconds added to a request's estimate, for its way to the engine and its answer."""
SLOWER = 2.0
"""Factor on the estimated seconds until the prefill ends."""
MAX_UNTRACKED = 50_000
"""Limit of requests tracked here. Beyond it, a reservation lasts until it expires."""
FEW = 8
"""Unreported requests for which a key can hold an engine at once, if other tenants would have to wait."""
SHARE = 0.1
"""Share of the engines' time within the TTFT objective that one key can hold by several requests. A tenant can hold
twice as much.
"""


class ReportingKeys:
    """API keys whose callers report how their requests end. Mutable: the time of each key's last report."""

    def __init__(self) -> None:
        self._reported_s: dict[str, float] = {}

    def reported(self, key_id: str, now: float) -> None:
        """Record that this key reported a request. Keys are from the snapshot, so their number is bounded."""
        self._reported_s[key_id] = now

    def reports(self, key_id: str, now: float) -> bool:
        """Return whether the key's caller reports its requests."""
        reported_s = self._reported_s.get(key_id)
        return reported_s is not None and now - reported_s <= REPORTED_S


def estimated_life_s(wait_s: float, compute_s: float, request: InferenceRequest, policy: RoutingPolicy) -> float:
    """Return the estimated seconds after which a dispatched request without reports has ended."""
    decoding_s = request.max_output_tokens * policy.tpot_slo_s
    return min(policy.reservation_ttl_s, wait_s + SLOWER * compute_s + decoding_s + GRACE_S)


class UnreportedHolds:
    """Engine time held by keys that report no requests, in pools where others would have to wait.

    It is unknown whether such a request was ever sent. Mutable: the records and their ends, by key and by tenant.
    """

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], list[tuple[float, DecisionRecord]]] = {}

    def take(self, record: DecisionRecord, key_id: str, life_s: float, now: float) -> bool:
        """Record the request as held for `life_s`. Return False, without recording it, if its key or tenant is at its
        limit.
        """
        pool = record.pool
        room_s = SHARE * pool.entry.policy.ttft_slo_s * len(pool.router.view.roster.accepting)
        limits = [
            (self._holdings((kind, name), now), shares)
            for kind, name, shares in (("key", key_id, 1), ("tenant", record.tenant_id, 2))
        ]
        for held, shares in limits:
            held_s = record.decision.compute_s + sum(other.decision.compute_s for _, other in held)
            # One request always passes, however long it is.
            if len(held) >= FEW * shares or (held and held_s > room_s * shares):
                return False
        for held, _ in limits:
            held.append((now + life_s, record))
        return True

    def _holdings(self, holder: tuple[str, str], now: float) -> list[tuple[float, DecisionRecord]]:
        """Return the requests that the holder still holds. The list is the table's own, not a copy."""
        kept = [item for item in self._held.get(holder, ()) if item[0] > now and not item[1].outcome]
        self._held[holder] = kept
        return kept


class UntrackedRequests:
    """Ends untracked requests when their time is up. Mutable: the requests by end time, and the loop's timer."""

    def __init__(self, assume_over: Callable[[DecisionRecord], None]) -> None:
        self._assume_over = assume_over
        self._due: list[tuple[float, int, DecisionRecord]] = []
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._due)

    def add(self, record: DecisionRecord, life_s: float) -> None:
        """End the request in `life_s` seconds unless it is reported first."""
        if len(self._due) >= MAX_UNTRACKED:
            return
        loop = asyncio.get_running_loop()
        # The number breaks ties, since records cannot be compared.
        heappush(self._due, (loop.time() + life_s, next(self._numbers), record))
        if self._timer is None or self._due[0][0] < self._timer.when():
            self._arm(loop)

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(self._due[0][0], self._end_due, loop) if self._due else None

    def _end_due(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        try:
            while self._due and self._due[0][0] <= loop.time():
                self._assume_over(heappop(self._due)[2])
        finally:
            # Also after a failure, which must not stop the timer for all others.
            self._arm(loop)
