"""The tickets that wait at one place: for one target, or unbound for the whole pool.

Which goes next is the order's to say; around it, whatever the order, stand fairness between tenants and
the bound on how long a ticket may be passed over.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

import msgspec

from routing.ledger.fleet_view import FleetView
from routing.policy.fairness_document import FairnessDocument
from routing.queue.fair_queueing import FairShares
from routing.queue.queue_order import Pick, Ticket, TicketQueue
from routing.queue.starvation import PassedOver
from routing.values import reasons

_TENANTS_ASKED = 16
"""Tenants whose tickets an engine looks at where those of the first had better go elsewhere."""


class LineRules(msgspec.Struct, frozen=True):
    """What holds for every line, whatever the order."""

    fairness: FairnessDocument = FairnessDocument()
    max_passed_over_s: float = float("inf")
    """A ticket that others have been granted before for longer goes next."""


NO_RULES = LineRules()


class WaitingLine:
    """Tickets by their coming, and beside it one queue in the order's sense, or one for each tenant.

    Mutable state: `_tickets` (number of coming → ticket), `_numbers` (the same numbers, rising),
    `_number_of` (request id → number), `_queues` and `_waiting_of` (tenant → queue and its tickets; "" for
    all without fairness), the shares and what was passed over.
    """

    def __init__(self, build: Callable[[], TicketQueue], rules: LineRules) -> None:
        self._build = build
        self._bound_s = rules.max_passed_over_s
        self._shares = FairShares(rules.fairness) if rules.fairness.enabled else None
        self._tickets: dict[int, Ticket] = {}
        self._numbers: list[int] = []
        self._number_of: dict[str, int] = {}
        self._queues: dict[str, TicketQueue] = {}
        self._waiting_of: dict[str, int] = {}
        self._passed = PassedOver()
        self._coming = 0
        self._compute_s = 0.0

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def tickets(self) -> list[Ticket]:
        """All tickets in order of their coming."""
        return list(self._tickets.values())

    @property
    def oldest(self) -> Ticket:
        """The ticket that came first, of some."""
        return self._tickets[self._numbers[0]]

    def ticket(self, request_id: str) -> Ticket:
        """Return the request's ticket; raises KeyError where none waits here."""
        return self._tickets[self._number_of[request_id]]

    def add(self, ticket: Ticket) -> None:
        """Take a ticket in."""
        self._coming += 1
        self._compute_s += ticket.compute_s
        self._tickets[self._coming] = ticket
        self._numbers.append(self._coming)
        self._number_of[ticket.request.request_id] = self._coming
        tenant = self._tenant(ticket)
        self._waiting_of[tenant] = self._waiting_of.get(tenant, 0) + 1
        queue = self._queues.get(tenant)
        if queue is None:
            queue = self._queues[tenant] = self._build()
            if self._shares is not None:
                self._shares.join(tenant)
        queue.add(ticket)

    def remove(self, ticket: Ticket) -> None:
        """Let a ticket go that is not wanted any more; raises KeyError where it is not."""
        number = self._number_of.pop(ticket.request.request_id)
        del self._tickets[number]
        del self._numbers[bisect_left(self._numbers, number)]
        self._compute_s = self._compute_s - ticket.compute_s if self._numbers else 0.0
        tenant = self._tenant(ticket)
        self._queues[tenant].remove(ticket)
        self._waiting_of[tenant] -= 1
        if self._shares is not None and not self._waiting_of[tenant]:
            del self._queues[tenant], self._waiting_of[tenant]
            self._shares.leave(tenant)

    def grant(self, ticket: Ticket, seconds: float, now: float) -> int:
        """Let a ticket go that is granted this much prefill; returns how many that came earlier stay behind."""
        number = self._number_of[ticket.request.request_id]
        overtook = bisect_left(self._numbers, number)
        self._passed.granted(number, now, self._numbers[0])
        if self._shares is not None:
            self._shares.charge(self._tenant(ticket), seconds)
        self.remove(ticket)
        return overtook

    def next(self, target: int, view: FleetView, at_s: float) -> Pick | None:
        """Return the ticket that goes next to `target`, whose prefill would start at `at_s`; None: had better none."""
        oldest = self._numbers[0]
        if at_s - self._passed.since(oldest) > self._bound_s:
            return Pick(self._tickets[oldest], reasons.PASSED_OVER_BOUND)
        if self._shares is None:
            return self._queues[""].next(target, view, at_s)
        for tenant in self._shares.first(_TENANTS_ASKED):
            pick = self._queues[tenant].next(target, view, at_s)
            if pick is not None:
                return pick if len(self._shares) == 1 else Pick(pick.ticket, reasons.FAIR_SHARE)
        return None

    def given_up(self) -> list[str]:
        """Return the ids of tickets that were found hopeless since the last question; some may be gone."""
        found: list[str] = []
        for queue in self._queues.values():
            found += queue.given_up()
        return found

    @property
    def passed_over_s(self) -> float:
        """Estimated prefill seconds of the tickets that any newcomer is granted before, as far as is known."""
        return sum(queue.passed_over_s for queue in self._queues.values())

    @property
    def ahead_s(self) -> float:
        """Estimated prefill seconds of the tickets that a newcomer has to wait for."""
        return max(self._compute_s - self.passed_over_s, 0.0)

    def check(self) -> None:
        """Raise AssertionError unless numbers, tickets and queues agree."""
        if self._numbers != sorted(self._tickets) or self._numbers != list(self._tickets):
            raise AssertionError("the tickets are not in order of their coming")
        if self._number_of != {each.request.request_id: number for number, each in self._tickets.items()}:
            raise AssertionError("a ticket stands under another number")
        for queue in self._queues.values():
            queue.check()
        if self._shares is not None:
            self._shares.check()
            tenants = {each.request.tenant_id for each in self._tickets.values()}
            if set(self._queues) != tenants or len(self._shares) != len(tenants):
                raise AssertionError("the tenants that wait and their queues differ")

    def _tenant(self, ticket: Ticket) -> str:
        return "" if self._shares is None else ticket.request.tenant_id
