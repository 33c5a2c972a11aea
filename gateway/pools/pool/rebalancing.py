"""Applies the rebalancing automation's orders to one pool."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gateway.contracts.rebalance_order import GOOD_S, MOVES_GOOD_S, RebalanceOrder
from routing.rebalancing_overrides import widen
from routing.router import Router


class Rebalancing:
    """Follows the newest order of the newest holder. Mutable: that order."""

    def __init__(self, router: Router, relieve: Callable[[str, int], None]) -> None:
        """`relieve` moves up to this many queued requests off an engine."""
        self._router = router
        self._relieve = relieve
        self._last: RebalanceOrder | None = None

    def follow(self, order: RebalanceOrder, widened: Mapping[int, int], unix: float) -> None:
        """Apply the order's table of widened prefixes, and make its moves once. `unix` is wall-clock seconds."""
        last = self._last
        if last is not None and (order.fence < last.fence or order.at <= last.at):
            return
        if unix - order.at > GOOD_S:
            return
        self._last = order
        widen(self._router, widened)
        if unix - order.at <= MOVES_GOOD_S:
            for move in order.moves:
                self._relieve(move.engine_id, move.at_most)

    def evaluate(self, unix: float) -> None:
        """Return widened prefixes to their usual engines once the order has expired. Call it periodically."""
        if self._last is not None and unix - self._last.at > GOOD_S:
            widen(self._router, {})
            self._last = None
