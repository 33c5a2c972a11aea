"""The second of the two protocols: which waiting ticket goes next."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import msgspec

from routing.ledger.fleet_view import FleetView
from routing.values.inference_request import InferenceRequest


class Ticket(msgspec.Struct, frozen=True, gc=False):
    """A request that waits at the gateway, with the estimated prefill time on its target."""

    request: InferenceRequest
    compute_s: float
    """On the best engine there is, where the ticket is bound to none."""
    excluded: frozenset[str] = frozenset()
    """Engines that an unbound ticket goes to only if no other takes work."""


class Pick(NamedTuple):
    """The ticket that goes next, and why this one: a code of routing.values.reasons."""

    ticket: Ticket
    reason: str


class TicketQueue(Protocol):
    """The tickets of one target, kept as an order likes them. Mutable; the waiting room owns it.

    Tickets come in order of binding and leave by grant or withdrawal; both cost far less than a walk
    over all of them, so that a grant stays cheap when hundreds wait.
    """

    def add(self, ticket: Ticket) -> None:
        """Take a ticket in; its request's id is new here."""
        ...

    def remove(self, ticket: Ticket) -> None:
        """Let a ticket go that was added."""
        ...

    def next(self, target: int, view: FleetView, at_s: float) -> Pick | None:
        """Return the ticket to grant to `target`, whose prefill would start at `at_s`; never asked while empty.

        None, of unbound tickets only: what waits had better go elsewhere. Only looks: the same question
        has the same answer until a ticket comes or goes or time passes.
        """
        ...

    def given_up(self) -> list[str]:
        """Return the ids of tickets that go last from now on, each told once; some may be gone."""
        ...

    @property
    def passed_over_s(self) -> float:
        """Estimated prefill seconds of the tickets that any newcomer is granted before, as far as is known."""
        ...

    def check(self) -> None:
        """Raise AssertionError unless all parts agree with each other."""
        ...


class QueueOrder(Protocol):
    """Decides in which order the tickets bound to a target are granted."""

    def queue(self) -> TicketQueue:
        """Return an empty queue in this order."""
        ...


@runtime_checkable
class PullingOrder(QueueOrder, Protocol):
    """An order that also binds: engines pull from one queue of all unbound tickets."""

    def pool_queue(self) -> TicketQueue:
        """Return an empty queue for the unbound tickets of the whole pool."""
        ...
