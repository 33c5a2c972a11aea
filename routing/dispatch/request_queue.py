"""The queued requests of one pool: requests that wait at the gateway, bound to a target or to none."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from routing.ledger.fleet_view import FleetView
from routing.ledger.reservations import Reservation
from routing.policy.policy_document import RoutingPolicy
from routing.queue.orders.fifo import Fifo
from routing.queue.queue_order import Pick, PullingOrder, QueueOrder
from routing.queue.target_queue import NO_RULES, LineRules, WaitingLine
from routing.values.decision import CENTRAL, Decision


class WaitingRoom:
    """Queued requests by target, in lines that the order and the rules keep.

    Mutable state: `_lines` (per target that has requests), `entries` (of each request), `_by_tenant`, how many requests
    each tenant has, and `_arrivals`, a heap of (arrival, request id) that may hold entries of removed requests.
    """

    def __init__(self, order: QueueOrder, rules: LineRules = NO_RULES) -> None:
        self._order = order
        self._rules = rules
        self.pulls = isinstance(order, PullingOrder)
        """Whether engines pull unbound requests, instead of the placement binding them."""
        self._lines: dict[int, WaitingLine] = {}
        self.entries: dict[str, tuple[int, Decision]] = {}
        """Request id → target and the decision so far; only this class changes it."""
        self._arrivals: list[tuple[float, str]] = []
        self._by_tenant: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self.entries

    def reorder(self, order: QueueOrder, rules: LineRules = NO_RULES) -> None:
        """Change the order and the rules of all queued requests."""
        self._order, self._rules = order, rules
        self.pulls = isinstance(order, PullingOrder)
        lines, self._lines = self._lines, {}
        for target in sorted(lines):
            line = self._lines[target] = self._new_line(target)
            for queued in lines[target].queued_requests:
                line.add(queued)

    def add(self, queued: Reservation, decision: Decision) -> None:
        """Add a request to its target's line."""
        target, request = queued.target, queued.request
        line = self._lines.get(target)
        if line is None:
            line = self._lines[target] = self._new_line(target)
        line.add(queued)
        self._by_tenant[request.tenant_id] = self._by_tenant.get(request.tenant_id, 0) + 1
        self.entries[request.request_id] = (target, decision)
        heappush(self._arrivals, (request.arrived_s, request.request_id))

    def of(self, target: int) -> Sequence[Reservation]:
        """Return a snapshot of the target's requests, in order of arrival."""
        line = self._lines.get(target)
        return line.queued_requests if line is not None else ()

    def first(self, target: int) -> Reservation:
        """Return the queued request that arrived first at a target that has some."""
        return self._lines[target].oldest

    def has(self, target: int) -> bool:
        """Return whether any queued request waits for the target."""
        return target in self._lines

    def next(self, target: int, view: FleetView, at_s: float) -> Pick | None:
        """Return the next queued request of a target that has some, if its prefill would start at `at_s`."""
        return self._lines[target].next(target, view, at_s)

    def pull(self, target: int, view: FleetView, at_s: float) -> Pick | None:
        """Return the best unbound request for the target to run next; None where there is none."""
        line = self._lines.get(CENTRAL)
        return line.next(target, view, at_s) if line is not None else None

    def late_last_s(self, target: int) -> float:
        """Return the estimated prefill seconds of the target's queued requests that a newcomer would not wait for."""
        line = self._lines.get(target)
        return line.late_last_s if line is not None else 0.0

    def given_up(self, target: int) -> list[str]:
        """Return the ids of the target's requests that became infeasible since the last call; some may be gone."""
        line = self._lines.get(target)
        return line.given_up() if line is not None else []

    def unbound_s(self) -> float:
        """Return the estimated prefill seconds, on one engine, of unbound requests that a newcomer has to wait for."""
        line = self._lines.get(CENTRAL)
        return line.ahead_s if line is not None else 0.0

    def targets(self) -> list[int]:
        """Return the targets that have queued requests, in order."""
        return sorted(self._lines)

    def queued(self, request_id: str) -> Reservation:
        """Return the queued request of this id; raises KeyError where none waits."""
        return self._lines[self.entries[request_id][0]].queued(request_id)

    def decision(self, request_id: str) -> Decision:
        """Return the decision of a queued request; raises KeyError where none waits."""
        return self.entries[request_id][1]

    def remove(self, request_id: str) -> Decision:
        """Remove a queued request and return its decision; raises KeyError where none waits."""
        target, decision = self.entries.pop(request_id)
        line = self._lines[target]
        queued = line.queued(request_id)
        line.remove(queued)
        self._left(target, line, queued)
        return decision

    def dispatch(self, request_id: str, seconds: float, now: float) -> tuple[Decision, int]:
        """Remove a queued request that is dispatched with `seconds` of prefill.

        Returns its decision and how many queued requests of its line arrived earlier and stay behind; raises KeyError
        where none waits.
        """
        target, decision = self.entries.pop(request_id)
        line = self._lines[target]
        queued = line.queued(request_id)
        overtook = line.dispatch(queued, seconds, now)
        self._left(target, line, queued)
        return decision, overtook

    def older_than(self, arrived_s: float) -> list[Reservation]:
        """Return the queued requests that arrived at or before this moment."""
        oldest = self.oldest_arrival_s()
        if oldest is None or oldest > arrived_s:
            return []
        return [
            queued
            for target in self.targets()
            for queued in self._lines[target].queued_requests
            if queued.request.arrived_s <= arrived_s
        ]

    def is_full(self, tenant: str, policy: RoutingPolicy, deferred: int) -> bool:
        """Return whether this tenant may queue no further request in addition to `deferred` deferred ones.

        Where dispatches alternate between tenants, one that holds less than its part of the limit is accepted beyond
        it.
        """
        limit, total = policy.queue_limit, len(self.entries) + deferred
        if total < limit:
            return False
        held = self._by_tenant.get(tenant, 0)
        sharing = len(self._by_tenant) + (0 if held else 1)
        return not policy.fairness.enabled or total >= 2 * limit or held * sharing >= limit

    def oldest_arrival_s(self) -> float | None:
        """Return the arrival of the request that waits longest; None while nothing waits."""
        while self._arrivals and self._arrivals[0][1] not in self.entries:
            heappop(self._arrivals)
        return self._arrivals[0][0] if self._arrivals else None

    def check(self) -> None:
        """Raise AssertionError unless queued requests, entries, lines and arrivals agree."""
        targets = {queued.request.request_id: target for target in self._lines for queued in self.of(target)}
        if targets != {request_id: target for request_id, (target, _) in self.entries.items()}:
            raise AssertionError("queued requests and their entries differ")
        if sum(self._by_tenant.values()) != len(self.entries) or 0 in self._by_tenant.values():
            raise AssertionError("the tenants' queued requests do not add up")
        for line in self._lines.values():
            line.check()
            if not len(line):
                raise AssertionError("a target is listed without queued requests")
        if set(self.entries) - {request_id for _, request_id in self._arrivals}:
            raise AssertionError("a queued request's arrival is not known")

    def _new_line(self, target: int) -> WaitingLine:
        order = self._order
        if target != CENTRAL:
            return WaitingLine(order.queue, self._rules)
        return WaitingLine(order.pool_queue if isinstance(order, PullingOrder) else Fifo().queue, self._rules)

    def _left(self, target: int, line: WaitingLine, queued: Reservation) -> None:
        """Clean up after the removal of a queued request."""
        tenant = queued.request.tenant_id
        self._by_tenant[tenant] -= 1
        if not self._by_tenant[tenant]:
            del self._by_tenant[tenant]
        if not len(line):
            del self._lines[target]
        # Entries of removed requests are dropped in bulk.
        if len(self._arrivals) > 2 * len(self.entries) + 64:
            self._arrivals = [
                (queued.request.arrived_s, queued.request.request_id)
                for item in self._lines.values()
                for queued in item.queued_requests
            ]
            heapify(self._arrivals)
