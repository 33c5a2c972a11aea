"""Counters of one router since its start: dispatches, waits, migrations, rejections, overtakings.

They are counted at the router's boundary, from the outcomes it returns, so new rejection codes need no change here.
Each outcome takes constant time.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from routing.values.decision import Dispatched, Outcome, Queued, Rejected

_SAME_S = 1e-9
"""Arrivals are derived from waits. Closer than this, they count as the same time."""


class CountsSeen(msgspec.Struct, frozen=True, gc=False):
    """The counts at one time. Every figure only increases."""

    dispatched_at_once: int = 0
    dispatched_after_waiting: int = 0
    queued: int = 0
    """Requests that were queued."""
    migrated: int = 0
    """Moves of a queued request to another engine. One request can move repeatedly."""
    overtaken: int = 0
    """Dispatches of queued requests whose engine had received a request that arrived later."""
    rejected: dict[str, int] = {}
    """Rejections by code."""


class RouterCounts:
    """Counts one router's outcomes. The router and its dispatcher write; all others read `seen()`.

    Mutable state: the counts, the rejections of requests, and per engine the latest arrival of a request sent to it.
    """

    def __init__(self) -> None:
        self.migrated = 0
        self._at_once = 0
        self._after_waiting = 0
        self._queued = 0
        self._overtaken = 0
        self._rejected: dict[str, int] = {}
        self._rejected_queued = 0
        self._latest_arrival_s: dict[str, float] = {}

    def seen(self) -> CountsSeen:
        """Return a snapshot of the counts."""
        return CountsSeen(
            self._at_once, self._after_waiting, self._queued, self.migrated, self._overtaken, dict(self._rejected)
        )

    def answered(self, outcome: Outcome) -> Outcome:
        """Count the outcome of a new request and return it."""
        if isinstance(outcome, Dispatched):
            self._at_once += 1
        elif isinstance(outcome, Queued):
            self._queued += 1
        else:
            self._reject(outcome)
        return outcome

    def followed(self, outcomes: list[Outcome], now: float) -> list[Outcome]:
        """Count the outcomes of queued requests and return them."""
        for outcome in outcomes:
            if isinstance(outcome, Dispatched):
                self._after_waiting += 1
                self._overtake(outcome.decision.engine_id, now - outcome.decision.queued_s)
            elif isinstance(outcome, Rejected):
                self._rejected_queued += 1
                self._reject(outcome)
        return outcomes

    def keep(self, engine_ids: Iterable[str]) -> None:
        """Forget the arrivals at all other engines."""
        latest = self._latest_arrival_s
        self._latest_arrival_s = {engine_id_: latest[engine_id_] for engine_id_ in engine_ids if engine_id_ in latest}

    def check(self, waiting: int) -> None:
        """Raise AssertionError unless `waiting` agrees with the number of queued requests without an outcome."""
        if min(self.migrated, self._at_once, self._after_waiting, self._queued, *self._rejected.values(), 0) < 0:
            raise AssertionError("a count is negative")
        if self._rejected_queued > sum(self._rejected.values()):
            raise AssertionError("more queued requests are rejected than requests")
        if self._overtaken > self._after_waiting:
            raise AssertionError("more queued requests were overtaken than dispatched")
        if waiting > self._queued - self._after_waiting - self._rejected_queued:
            raise AssertionError("more queued requests wait than were queued and not answered")

    def _reject(self, rejected: Rejected) -> None:
        self._rejected[rejected.code] = self._rejected.get(rejected.code, 0) + 1

    def _overtake(self, engine_id: str, arrived_s: float) -> None:
        latest_s = self._latest_arrival_s.get(engine_id)
        if latest_s is not None and arrived_s < latest_s - _SAME_S:
            self._overtaken += 1
        else:
            self._latest_arrival_s[engine_id] = arrived_s
