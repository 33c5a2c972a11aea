"""The protocol for queue orders, which choose the queued request to dispatch next."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

from routing.ledger.fleet_view import FleetView
from routing.ledger.reservations import Reservation


class Pick(NamedTuple):
    """The queued request to dispatch next, and the reason: a code of routing.values.reasons."""

    queued: Reservation
    reason: str


class OrderedQueue(Protocol):
    """The queued requests of one target, in the order's own structure. Mutable; the waiting room owns it.

    Queued requests are added in binding order and leave by dispatch or withdrawal. Both cost far less than a scan of
    all requests, so dispatches stay cheap with hundreds queued.
    """

    def add(self, queued: Reservation) -> None:
        """Add a queued request with a new request id."""

    def remove(self, queued: Reservation) -> None:
        """Remove a queued request."""

    def next(self, target: int, view: FleetView, at_s: float) -> Pick | None:
        """Return the request to dispatch to `target`, whose prefill would start at `at_s`. Not called while empty.

        None is allowed only for unbound requests, if all should go to other engines. The call changes no state: its
        result stays the same until a queued request is added or removed, or time passes.
        """

    def given_up(self) -> list[str]:
        """Return the ids of queued requests that were moved last in order, each reported once.

        Some can already be gone.
        """

    @property
    def late_last_s(self) -> float:
        """Return the estimated prefill seconds of the requests that any newcomer overtakes, as far as known."""

    def check(self) -> None:
        """Raise AssertionError if any parts disagree."""


class QueueOrder(Protocol):
    """Decides the dispatch order of the queued requests bound to a target."""

    def queue(self) -> OrderedQueue:
        """Return an empty queue in this order."""


@runtime_checkable
class PullingOrder(QueueOrder, Protocol):
    """An order that also binds requests: engines pull from one queue of all unbound requests."""

    def pool_queue(self) -> OrderedQueue:
        """Return an empty queue for the unbound requests of the whole pool."""
