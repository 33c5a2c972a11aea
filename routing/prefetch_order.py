"""Blocks that are wanted where a ticket will be served, ordered while it waits (queue-driven prefetch)."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import NamedTuple

import msgspec

from routing.fleet import FleetView
from routing.inference_request import InferenceRequest

MAX_ORDERS = 1024
"""Orders that nobody has taken yet, and as many that were taken; the oldest go first."""
MIN_BLOCKS = 2
"""Fewer blocks than so many are computed about as soon as fetched."""


class PrefetchOrder(msgspec.Struct, frozen=True, gc=False):
    """Bring these leading blocks of a waiting request's prompt to its engine; pointless once it is granted."""

    request_id: str
    engine_id: str
    """Where the ticket waits; of an unbound one, the engine that is expected to pull it."""
    source_engine_id: str
    """An engine that holds them; empty: they are to be looked for on lower tiers."""
    keys: tuple[int, ...]
    """Keys of the missing blocks, in prompt order."""
    first_block: int
    """Position of the first of them in the prompt."""


class PrefetchNews(NamedTuple):
    """What whoever moves blocks is told at once."""

    orders: list[PrefetchOrder]
    """New ones, oldest first."""
    withdrawn: list[str]
    """Requests whose order was told and is pointless since: the ticket was granted, is gone or waits elsewhere."""


class PrefetchOrders:
    """Orders to be taken by whoever moves blocks, one for each ticket; none are made until somebody asked once.

    Mutable state: `_orders` by request id, `_out` (request id → engine of those taken whose ticket still waits),
    `_void` (requests of those taken whose ticket does not) and whether anybody takes them.
    """

    def __init__(self) -> None:
        self._taken = False
        self._orders: OrderedDict[str, PrefetchOrder] = OrderedDict()
        self._out: OrderedDict[str, str] = OrderedDict()
        self._void: deque[str] = deque(maxlen=MAX_ORDERS)

    def __len__(self) -> int:
        return len(self._orders)

    def __contains__(self, request_id: str) -> bool:
        """Return whether there is an order for this ticket, taken or not."""
        return request_id in self._orders or request_id in self._out

    def engines(self) -> set[str]:
        """Return the engines that blocks are ordered for, taken or not, for tickets that still wait."""
        return {order.engine_id for order in self._orders.values()} | set(self._out.values())

    def note(self, request: InferenceRequest, target: int, held: int, view: FleetView) -> None:
        """Order what another engine holds of a prompt that waits for `target`, which has or gets `held` blocks."""
        if not self._taken:
            return
        self.forget(request.request_id)
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
        """Withdraw the order of a ticket that waits no more, or elsewhere; unknown ids are ignored."""
        if not self._taken:
            return
        if self._orders.pop(request_id, None) is None and self._out.pop(request_id, None) is not None:
            self._void.append(request_id)

    def take(self) -> PrefetchNews:
        """Return all orders and remember only whom they are for; and each withdrawal, once."""
        self._taken = True
        orders = list(self._orders.values())
        self._orders.clear()
        for order in orders:
            self._out[order.request_id] = order.engine_id
        while len(self._out) > MAX_ORDERS:
            self._out.popitem(last=False)
        withdrawn = list(self._void)
        self._void.clear()
        return PrefetchNews(orders, withdrawn)

    def check(self) -> None:
        """Raise AssertionError unless every order stands under its own request and names two engines and blocks."""
        for request_id, order in self._orders.items():
            if order.request_id != request_id or not order.keys or order.source_engine_id == order.engine_id:
                raise AssertionError(f"the order of {request_id} makes no sense: {order}")
        if max(len(self._orders), len(self._out)) > MAX_ORDERS:
            raise AssertionError(f"{len(self._orders)} orders and {len(self._out)} that were taken are over the limit")
        if both := self._orders.keys() & self._out.keys():
            raise AssertionError(f"ordered once more before the first order was withdrawn: {sorted(both)}")
