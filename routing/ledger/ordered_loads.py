"""Loads that the router has ordered and that have not ended: the bytes that a further load waits for.

A link and an SSD serve their loads one after another. Learned rates alone cannot show the wait: it depends on the loads
ordered a moment ago, of which no engine has reported yet.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from typing import NamedTuple, TypeVar

MAX_ORDERS = 16_384
"""Maximum loads remembered, in progress or ended; the oldest are forgotten."""

_Name = TypeVar("_Name")


class OrderedLoad(NamedTuple):
    """One load, and the bytes that were ahead of it."""

    link: tuple[str, str]
    """The engine's own node, and the node that holds the blocks."""
    size: float
    ssd_size: float
    link_ahead: float
    ssd_ahead: float


class OrderedLoads:
    """Mutable: `_running` and `_ended` (request → load), and the bytes of running loads by link and by SSD."""

    def __init__(self, limit: int = MAX_ORDERS) -> None:
        self._limit = limit
        self._running: OrderedDict[str, OrderedLoad] = OrderedDict()
        self._ended: OrderedDict[str, OrderedLoad] = OrderedDict()
        self._on_link: defaultdict[tuple[str, str], float] = defaultdict(float)
        self._on_ssd: defaultdict[str, float] = defaultdict(float)

    def __len__(self) -> int:
        return len(self._running)

    def on_link(self, home: str, node: str) -> float:
        """Return the bytes that a further load over a link waits for."""
        return self._on_link.get((home, node), 0.0)

    def on_ssd(self, node: str) -> float:
        """Return the bytes that a further load from a node's SSD waits for."""
        return self._on_ssd.get(node, 0.0)

    def begin(self, request_id: str, link: tuple[str, str], size: float, ssd_size: float) -> None:
        """Count a request's load. At the limit, forget the oldest one."""
        self.end(request_id)
        if len(self._running) >= self._limit:
            self.end(next(iter(self._running)))
        load = OrderedLoad(link, size, ssd_size, self._on_link[link], self._on_ssd[link[1]])
        self._running[request_id] = load
        self._on_link[link] += size
        self._on_ssd[link[1]] += ssd_size

    def end(self, request_id: str) -> None:
        """Stop counting a request's load. Repeated calls and unknown requests are ignored."""
        load = self._running.pop(request_id, None)
        if load is None:
            return
        home, node = load.link
        self._settle(self._on_link, (home, node), load.size)
        self._settle(self._on_ssd, node, load.ssd_size)
        self._ended[request_id] = load
        if len(self._ended) > self._limit:
            self._ended.popitem(last=False)

    def take(self, request_id: str) -> OrderedLoad | None:
        """End a request's load and return it once, to learn from its time."""
        self.end(request_id)
        return self._ended.pop(request_id, None)

    def check(self) -> None:
        """Recompute the sums, and raise AssertionError if one is wrong."""
        link: defaultdict[tuple[str, str], float] = defaultdict(float)
        ssd: defaultdict[str, float] = defaultdict(float)
        for load in self._running.values():
            link[load.link] += load.size
            ssd[load.link[1]] += load.ssd_size
        sums = [(self._on_link[name], link[name]) for name in {*self._on_link, *link}]
        sums += [(self._on_ssd[name], ssd[name]) for name in {*self._on_ssd, *ssd}]
        if any(abs(kept - true) > 1.0 for kept, true in sums) or len(self._running) > self._limit:
            raise AssertionError("the bytes of ordered loads are not those of the running ones")

    def _settle(self, sums: dict[_Name, float], name: _Name, size: float) -> None:
        sums[name] -= size
        # Below one byte only rounding is left.
        if sums[name] < 1.0:
            del sums[name]
