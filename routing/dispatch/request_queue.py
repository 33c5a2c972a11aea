"""Queued requests of one pool: requests that wait at the gateway, bound to a target or unbound."""

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
    """Queued requests by target, in the order set by the policy.

    Mutable state: `_lines` (per target with queued requests), `entries` (per request), `_by_tenant` (number of requests
    per tenant), and `_arrivals`, a heap of (arrival, request id) that can contain removed requests.
    """

    def __init__(self, order: QueueOrder, rules: LineRules = NO_RULES) -> None:
        self._order = order
        self._rules = rules
        self.pulls = isinstance(order, PullingOrder)
        """Whether engines pull unbound requests instead of the placement binding them."""
        self._lines: dict[int, WaitingLine] = {}
        self.entries: dict[str, tuple[int, Decision]] = {}
        """Request id → target and latest decision. Only this class changes it."""
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
        """Add a request to its target's queue."""
        target, request = queued.target, queued.request
        line = self._lines.get(target)
        if line is None:
            line = self._lines[target] = self._new_line(target)
        line.add(queued)
        self._by_tenant[request.tenant_id] = self._by_tenant.get(request.tenant_id, 0) + 1
        self.entries[request.request_id] = (target, decision)
        heappush(self._arrivals, (request.arrived_s, request.request_id))

    def of(self, target: int) -> Sequence[Reservation]:
        """Return a snapshot of the target's requests in arrival order."""
        line = self._lines.get(target)
        return line.queued_requests if line is not None else ()

    def first(self, target: int) -> Reservation:
        """Return the request that arrived first at a target that has queued requests."""
        return self._lines[target].oldest

    def has(self, target: int) -> bool:
        """Return whether the target has queued requests."""
        return target in self._lines

    def next(self, target: int, view: FleetView, at_s: float) -> Pick | None:
        """Return the next request of a target with queued requests, if its prefill would start at `at_s`."""
        return self._lines[target].next(target, view, at_s)

    def pull(self, target: int, view: FleetView, at_s: float) -> Pick | None:
        """Return the best unbound request to run next on the target, or None."""
        line = self._lines.get(CENTRAL)
        return line.next(target, view, at_s) if line is not None else None

    def late_last_s(self, target: int) -> float:
        """Return the estimated prefill seconds of the target's queued requests that a newcomer would overtake."""
        line = self._lines.get(target)
        return line.late_last_s if line is not None else 0.0

    def given_up(self, target: int) -> list[str]:
        """Return the ids of the target's newly infeasible requests. Some can already be gone."""
        line = self._lines.get(target)
        return line.given_up() if line is not None else []

    def unbound_s(self) -> float:
        """Return the estimated prefill seconds, on one engine, of the unbound requests ahead of a newcomer."""
        line = self._lines.get(CENTRAL)
        return line.ahead_s if line is not None else 0.0

    def targets(self) -> list[int]:
        """Return the targets with queued requests, in order."""
        return sorted(self._lines)

    def queued(self, request_id: str) -> Reservation:
        """Return the queued request with this id. Raises KeyError if it is not queued."""
        return self._lines[self.entries[request_id][0]].queued(request_id)

    def decision(self, request_id: str) -> Decision:
        """Return the decision of a queued request. Raises KeyError if it is not queued."""
        return self.entries[request_id][1]

    def remove(self, request_id: str) -> Decision:
        """Remove a queued request and return its decision. Raises KeyError if it is not queued."""
        target, decision = self.entries.pop(request_id)
        line = self._lines[target]
        queued = line.queued(request_id)
        line.remove(queued)
        self._left(target, line, queued)
        return decision

    def dispatch(self, request_id: str, seconds: float, now: float) -> tuple[Decision, int]:
        """Remove a queued request that is dispatched with `seconds` of prefill.

        Returns its decision and the number of earlier requests that stay in the same queue. Raises KeyError if it is
        not queued.
        """
        target, decision = self.entries.pop(request_id)
        line = self._lines[target]
        queued = line.queued(request_id)
        overtook = line.dispatch(queued, seconds, now)
        self._left(target, line, queued)
        return decision, overtook

    def older_than(self, arrived_s: float) -> list[Reservation]:
        """Return the queued requests that arrived at or before this time."""
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
        """Return whether this tenant can queue no further request, given `deferred` deferred ones.

        If dispatches alternate between tenants, a tenant with less than its share of the limit can still queue requests
        beyond the limit.
        """
        limit, total = policy.queue_limit, len(self.entries) + deferred
        if total < limit:
            return False
        held = self._by_tenant.get(tenant, 0)
        sharing = len(self._by_tenant) + (0 if held else 1)
        return not policy.fairness.enabled or total >= 2 * limit or held * sharing >= limit

    def oldest_arrival_s(self) -> float | None:
        """Return the arrival of the request that has waited longest, None if no request waits."""
        while self._arrivals and self._arrivals[0][1] not in self.entries:
            heappop(self._arrivals)
        return self._arrivals[0][0] if self._arrivals else None

    def check(self) -> None:
        """Raise AssertionError if queued requests, entries, queues, and arrivals disagree."""
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
