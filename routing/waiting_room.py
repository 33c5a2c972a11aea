"""The tickets of one pool: requests that wait at the gateway, bound to a target or to none."""

from __future__ import annotations

from collections.abc import Sequence

from routing.decision import Decision
from routing.inference_request import InferenceRequest
from routing.queue_order import Ticket


class WaitingRoom:
    """Tickets by target, each in order of arrival there.

    Mutable state: `_by_target` and `_where` (request id → target and the decision so far).
    """

    def __init__(self) -> None:
        self._by_target: dict[int, list[Ticket]] = {}
        self._where: dict[str, tuple[int, Decision]] = {}

    def __len__(self) -> int:
        return len(self._where)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._where

    def add(self, target: int, request: InferenceRequest, compute_s: float, decision: Decision) -> None:
        """Let a request wait for the target."""
        self._by_target.setdefault(target, []).append(Ticket(request, compute_s))
        self._where[request.request_id] = (target, decision)

    def of(self, target: int) -> Sequence[Ticket]:
        """Return the tickets of a target as they stand now (later changes do not show)."""
        return tuple(self._by_target.get(target, ()))

    def has(self, target: int) -> bool:
        """Return whether any ticket waits for the target."""
        return target in self._by_target

    def targets(self) -> list[int]:
        """Return the targets that have tickets, in order."""
        return sorted(self._by_target)

    def ticket(self, request_id: str) -> Ticket:
        """Return the request's ticket; raises KeyError where none waits."""
        target, _ = self._where[request_id]
        return next(each for each in self._by_target[target] if each.request.request_id == request_id)

    def remove(self, request_id: str) -> Decision:
        """Take a ticket out and return the decision it waited under; raises KeyError where none waits."""
        target, decision = self._where.pop(request_id)
        left = [each for each in self._by_target[target] if each.request.request_id != request_id]
        if left:
            self._by_target[target] = left
        else:
            del self._by_target[target]
        return decision

    def older_than(self, arrived_s: float) -> list[Ticket]:
        """Return the tickets that arrived at or before this moment."""
        return [
            ticket
            for target in self.targets()
            for ticket in self._by_target[target]
            if ticket.request.arrived_s <= arrived_s
        ]

    def oldest_arrival_s(self) -> float | None:
        """Return the arrival of the ticket that waits longest; None while nothing waits."""
        return min(
            (ticket.request.arrived_s for tickets in self._by_target.values() for ticket in tickets), default=None
        )

    def check(self) -> None:
        """Raise AssertionError unless tickets and places agree."""
        standing = {each.request.request_id: target for target, tickets in self._by_target.items() for each in tickets}
        if standing != {request_id: target for request_id, (target, _) in self._where.items()}:
            raise AssertionError("tickets and their places differ")
        if not all(self._by_target.values()):
            raise AssertionError("a target is listed without tickets")
