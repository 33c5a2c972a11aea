"""The second of the two protocols: which queued request is dispatched next."""

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

    Queued requests are added in order of binding and leave by dispatch or withdrawal; both cost far less than a scan of
    all of them, so that a dispatch stays cheap when hundreds wait.
    """

    def add(self, queued: Reservation) -> None:
        """Add a queued request; its request's id is new here."""

    def remove(self, queued: Reservation) -> None:
        """Remove a queued request that was added."""

    def next(self, target: int, view: FleetView, at_s: float) -> Pick | None:
        """Return the request to dispatch to `target`, whose prefill would start at `at_s`; not called while empty.

        None, of unbound requests only: the waiting ones had better go elsewhere. Changes nothing: the same call has the
        same answer until a queued request is added or removed or time passes.
        """

    def given_up(self) -> list[str]:
        """Return the ids of queued requests that have become last in line, each reported once; some may be gone."""

    @property
    def late_last_s(self) -> float:
        """Estimated prefill seconds of the requests that any newcomer overtakes, as far as is known."""

    def check(self) -> None:
        """Raise AssertionError unless all parts agree with each other."""


class QueueOrder(Protocol):
    """Decides in which order the queued requests bound to a target are dispatched."""

    def queue(self) -> OrderedQueue:
        """Return an empty queue in this order."""


@runtime_checkable
class PullingOrder(QueueOrder, Protocol):
    """An order that also binds: engines pull from one queue of all unbound requests."""

    def pool_queue(self) -> OrderedQueue:
        """Return an empty queue for the unbound requests of the whole pool."""
