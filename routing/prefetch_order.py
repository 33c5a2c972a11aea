"""Blocks that are wanted where a ticket will be served, ordered while it waits (queue-driven prefetch)."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from routing.fleet import FleetView
from routing.inference_request import InferenceRequest

MAX_ORDERS = 1024
"""Orders that nobody has taken yet; the oldest go first."""
MIN_BLOCKS = 2
"""Fewer blocks than so many are computed about as soon as fetched."""


class PrefetchOrder(msgspec.Struct, frozen=True, gc=False):
    """Bring these leading blocks of a waiting request's prompt to its engine; pointless once it is granted."""

    request_id: str
    engine_id: str
    """Where the ticket waits."""
    source_engine_id: str
    """An engine that holds them; empty: they are to be looked for on lower tiers."""
    keys: tuple[int, ...]
    """Keys of the missing blocks, in prompt order."""
    first_block: int
    """Position of the first of them in the prompt."""


class PrefetchOrders:
    """Orders to be taken by whoever moves blocks, one for each ticket; none are made until somebody asked once.

    Mutable state: the orders by request id, and whether anybody takes them.
    """

    def __init__(self) -> None:
        self._taken = False
        self._orders: OrderedDict[str, PrefetchOrder] = OrderedDict()

    def __len__(self) -> int:
        return len(self._orders)

    def note(self, request: InferenceRequest, target: int, held: int, view: FleetView) -> None:
        """Order what another engine holds of a prompt that waits for `target`, which has or gets `held` blocks."""
        if not self._taken:
            return
        resident = view.resident_match(request)
        if resident.longest < held + MIN_BLOCKS:
            return
        depth, mask = resident.groups[0]
        source = next(each for each in view.accepting if mask >> each & 1)
        self._orders[request.request_id] = PrefetchOrder(
            request.request_id,
            view.engine_ids[target],
            view.engine_ids[source],
            tuple(request.keys[held:depth]),
            held,
        )
        if len(self._orders) > MAX_ORDERS:
            self._orders.popitem(last=False)

    def forget(self, request_id: str) -> None:
        """Withdraw the order of a ticket that waits no more; unknown ids are ignored."""
        self._orders.pop(request_id, None)

    def take(self) -> list[PrefetchOrder]:
        """Return all orders, oldest first, and keep them no more."""
        self._taken = True
        orders = list(self._orders.values())
        self._orders.clear()
        return orders

    def check(self) -> None:
        """Raise AssertionError unless every order stands under its own request and names two engines and blocks."""
        for request_id, order in self._orders.items():
            if order.request_id != request_id or not order.keys or order.source_engine_id == order.engine_id:
                raise AssertionError(f"the order of {request_id} makes no sense: {order}")
        if len(self._orders) > MAX_ORDERS:
            raise AssertionError(f"{len(self._orders)} orders are over the limit")
