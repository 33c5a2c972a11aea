"""What one router has done with its requests since it began: grants, tickets, migrations, refusals, overtakings.

Counted at the router's door, from the outcomes it returns, so that a new code of refusal counts without
being known here. Constant work per outcome.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from routing.values.decision import Granted, Outcome, Queued, Refused

_SAME_S = 1e-9
"""Arrivals are worked out from waits; closer than this they count as one moment."""


class CountsSeen(msgspec.Struct, frozen=True, gc=False):
    """The counts at one moment; every figure only grows."""

    granted_at_once: int = 0
    granted_after_waiting: int = 0
    queued: int = 0
    """Requests that became tickets."""
    migrated: int = 0
    """Moves of a waiting ticket to another engine; one ticket may move more than once."""
    overtaken: int = 0
    """Grants of tickets before which their engine was granted a ticket that came to the gateway later."""
    refused: dict[str, int] = {}
    """By code of Refused."""


class RouterCounts:
    """Counts one router's outcomes; the router and its dispatcher write, everyone else takes `seen()`.

    Mutable state: the counts, refusals of tickets among them, and per engine the latest arrival of any ticket
    that it was granted.
    """

    def __init__(self) -> None:
        self.migrated = 0
        self._at_once = 0
        self._after_waiting = 0
        self._queued = 0
        self._overtaken = 0
        self._refused: dict[str, int] = {}
        self._refused_tickets = 0
        self._latest_arrival_s: dict[str, float] = {}

    def seen(self) -> CountsSeen:
        """Return the counts as they stand."""
        return CountsSeen(
            self._at_once, self._after_waiting, self._queued, self.migrated, self._overtaken, dict(self._refused)
        )

    def answered(self, outcome: Outcome) -> Outcome:
        """Count what a new request was answered and return it."""
        if isinstance(outcome, Granted):
            self._at_once += 1
        elif isinstance(outcome, Queued):
            self._queued += 1
        else:
            self._refuse(outcome)
        return outcome

    def followed(self, outcomes: list[Outcome], now: float) -> list[Outcome]:
        """Count what became of tickets and return it."""
        for outcome in outcomes:
            if isinstance(outcome, Granted):
                self._after_waiting += 1
                self._overtake(outcome.decision.engine_id, now - outcome.decision.queued_s)
            elif isinstance(outcome, Refused):
                self._refused_tickets += 1
                self._refuse(outcome)
        return outcomes

    def keep(self, engine_ids: Iterable[str]) -> None:
        """Forget the arrivals at engines that are gone."""
        latest = self._latest_arrival_s
        self._latest_arrival_s = {each: latest[each] for each in engine_ids if each in latest}

    def check(self, waiting: int) -> None:
        """Raise AssertionError unless `waiting` tickets can be left of those that were queued and not answered."""
        if min(self.migrated, self._at_once, self._after_waiting, self._queued, *self._refused.values(), 0) < 0:
            raise AssertionError("a count is negative")
        if self._refused_tickets > sum(self._refused.values()):
            raise AssertionError("more tickets are refused than requests")
        if self._overtaken > self._after_waiting:
            raise AssertionError("more tickets were overtaken than granted")
        if waiting > self._queued - self._after_waiting - self._refused_tickets:
            raise AssertionError("more tickets wait than were queued and not answered")

    def _refuse(self, refused: Refused) -> None:
        self._refused[refused.code] = self._refused.get(refused.code, 0) + 1

    def _overtake(self, engine_id: str, arrived_s: float) -> None:
        latest_s = self._latest_arrival_s.get(engine_id)
        if latest_s is not None and arrived_s < latest_s - _SAME_S:
            self._overtaken += 1
        else:
            self._latest_arrival_s[engine_id] = arrived_s
