"""Requests of one queue: bound to one target, or unbound for the whole pool.

The order decides which request is next. Fairness between tenants and the starvation limit apply to every order.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable

import msgspec

from routing.ledger.fleet_view import FleetView
from routing.ledger.reservations import Reservation
from routing.policy.fairness_document import FairnessDocument
from routing.queue.fair_queueing import FairShares
from routing.queue.queue_order import OrderedQueue, Pick
from routing.values import reasons


class Starvation:
    """Dispatches by the arrival number of their queued requests.

    Only a dispatch of a later arrival than all earlier dispatches is recorded: the first recorded number above a queued
    request's own was the first to overtake it. Mutable state: `_numbers` and `_moments`, both increasing.
    """

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._moments: list[float] = []

    def __len__(self) -> int:
        return len(self._numbers)

    def dispatched(self, number: int, now: float, oldest: int) -> None:
        """Record a dispatch. Queued requests with numbers below `oldest` no longer wait."""
        if not self._numbers or number > self._numbers[-1]:
            self._numbers.append(number)
            self._moments.append(now)
        gone = bisect_right(self._numbers, oldest)
        # In bulk, because each deletion at the front moves all the rest.
        if gone > 64:
            del self._numbers[:gone], self._moments[:gone]

    def since(self, number: int) -> float:
        """Return when a queued request was first overtaken, inf if never."""
        at = bisect_right(self._numbers, number)
        return self._moments[at] if at < len(self._moments) else float("inf")


_TENANTS_ASKED = 16
"""Maximum tenants whose requests an engine considers if the requests of the first ones should go to other engines."""


class LineRules(msgspec.Struct, frozen=True):
    """Rules that apply to every queue in any order."""

    fairness: FairnessDocument = FairnessDocument()
    starvation_limit_s: float = float("inf")
    """A queued request that has been overtaken for longer than this goes next."""


NO_RULES = LineRules()


class WaitingLine:
    """Queued requests by arrival, plus one ordered queue, or one per tenant with fairness.

    Mutable state: `_queued` (arrival number → queued request), `_numbers` (the same numbers, increasing), `_number_of`
    (request id → number), `_queues` and `_waiting_of` (tenant → queue and its queued requests; "" for all without
    fairness), the shares, and the starvation record.
    """

    def __init__(self, build: Callable[[], OrderedQueue], rules: LineRules) -> None:
        self._build = build
        self._starvation_limit_s = rules.starvation_limit_s
        self._shares = FairShares(rules.fairness) if rules.fairness.enabled else None
        self._queued: dict[int, Reservation] = {}
        self._numbers: list[int] = []
        self._number_of: dict[str, int] = {}
        self._queues: dict[str, OrderedQueue] = {}
        self._waiting_of: dict[str, int] = {}
        self._starvation = Starvation()
        self._coming = 0
        self._compute_s = 0.0

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def queued_requests(self) -> list[Reservation]:
        """All queued requests in arrival order."""
        return list(self._queued.values())

    @property
    def oldest(self) -> Reservation:
        """The queued request that arrived first. At least one is required."""
        return self._queued[self._numbers[0]]

    def queued(self, request_id: str) -> Reservation:
        """Return the queued request with this id. Raises KeyError if it is not queued here."""
        return self._queued[self._number_of[request_id]]

    def add(self, queued: Reservation) -> None:
        """Add a queued request."""
        self._coming += 1
        self._compute_s += queued.compute_s
        self._queued[self._coming] = queued
        self._numbers.append(self._coming)
        self._number_of[queued.request.request_id] = self._coming
        tenant = self._tenant(queued)
        self._waiting_of[tenant] = self._waiting_of.get(tenant, 0) + 1
        queue = self._queues.get(tenant)
        if queue is None:
            queue = self._queues[tenant] = self._build()
            if self._shares is not None:
                self._shares.join(tenant)
        queue.add(queued)

    def remove(self, queued: Reservation) -> None:
        """Remove a queued request that is no longer wanted. Raises KeyError if it is absent."""
        number = self._number_of.pop(queued.request.request_id)
        del self._queued[number]
        del self._numbers[bisect_left(self._numbers, number)]
        # An empty line resets the sum, so that rounding errors do not add up.
        self._compute_s = self._compute_s - queued.compute_s if self._numbers else 0.0
        tenant = self._tenant(queued)
        self._queues[tenant].remove(queued)
        self._waiting_of[tenant] -= 1
        if self._shares is not None and not self._waiting_of[tenant]:
            del self._queues[tenant], self._waiting_of[tenant]
            self._shares.leave(tenant)

    def dispatch(self, queued: Reservation, seconds: float, now: float) -> int:
        """Remove a request that is dispatched with `seconds` of prefill. Return how many earlier ones stay."""
        number = self._number_of[queued.request.request_id]
        overtook = bisect_left(self._numbers, number)
        self._starvation.dispatched(number, now, self._numbers[0])
        if self._shares is not None:
            self._shares.charge(self._tenant(queued), seconds)
        self.remove(queued)
        return overtook

    def next(self, target: int, view: FleetView, at_s: float) -> Pick | None:
        """Return the request to dispatch next to `target` if its prefill would start at `at_s`, or None to wait."""
        oldest = self._numbers[0]
        if at_s - self._starvation.since(oldest) > self._starvation_limit_s:
            return Pick(self._queued[oldest], reasons.STARVATION_LIMIT)
        if self._shares is None:
            return self._queues[""].next(target, view, at_s)
        for tenant in self._shares.first(_TENANTS_ASKED):
            pick = self._queues[tenant].next(target, view, at_s)
            if pick is not None:
                return pick if len(self._shares) == 1 else Pick(pick.queued, reasons.FAIR_SHARE)
        return None

    def given_up(self) -> list[str]:
        """Return the ids of requests that became SLO-infeasible since the last call. Some can already be gone."""
        request_ids: list[str] = []
        for queue in self._queues.values():
            request_ids += queue.given_up()
        return request_ids

    @property
    def late_last_s(self) -> float:
        """Return the estimated prefill seconds of the requests that any newcomer overtakes, as far as known."""
        return sum(queue.late_last_s for queue in self._queues.values())

    @property
    def ahead_s(self) -> float:
        """Return the estimated prefill seconds of the queued requests ahead of a newcomer."""
        return max(self._compute_s - self.late_last_s, 0.0)

    def check(self) -> None:
        """Raise AssertionError if numbers, queued requests, and queues disagree."""
        if self._numbers != sorted(self._queued) or self._numbers != list(self._queued):
            raise AssertionError("the queued requests are not in order of arrival")
        if self._number_of != {queued.request.request_id: number for number, queued in self._queued.items()}:
            raise AssertionError("a queued request is under another number")
        for queue in self._queues.values():
            queue.check()
        if self._shares is not None:
            self._shares.check()
            tenants = {item.request.tenant_id for item in self._queued.values()}
            if set(self._queues) != tenants or len(self._shares) != len(tenants):
                raise AssertionError("the tenants that wait and their queues differ")

    def _tenant(self, queued: Reservation) -> str:
        return "" if self._shares is None else queued.request.tenant_id
