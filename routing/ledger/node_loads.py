"""Blocks that the engines of one pool can load from node managers, and the learned cost of a load.

Priors before a link's first load: a block is as large as the node's largest; the engine's own node sends 2 GB/s after 1
ms; any other node sends 1 GB/s (a 10 Gbit/s link with its overhead) after 2 ms. They overestimate the cost rather than
underestimate it. A load from another node ends with the same copy into the engine as a load from the engine's own node.
So before its first load, the own node is assumed to be cheaper than the cheapest known link, by the difference of the
priors; otherwise a replica on the engine's own machine would seem more expensive than any fast link. Blocks only on a
node's SSD are first read from it, at a separate cost: 2 GB/s until the first such load. The priors apply again to a
link or an SSD that has been idle for a while; otherwise a slow one would never be retried. For models with large
blocks, the priors are slower than computing: one load at a time is then tried on a link or an SSD without a
measurement. A load also waits for those that the router ordered before it on the same link or SSD.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvstore.index.prefix_match import NO_MATCH
from kvstore.transfer.quarantine import Quarantine
from routing.cost.loading_costs import LoadRate
from routing.ledger.node_holdings import NodeHoldings
from routing.ledger.ordered_loads import OrderedLoad, OrderedLoads
from routing.values.load_options import LoadOptions

OWN_LATENCY_S, OWN_S_PER_BYTE = 0.001, 1 / 2e9
OTHER_LATENCY_S, OTHER_S_PER_BYTE = 0.002, 1 / 1e9
SSD_LATENCY_S, SSD_S_PER_BYTE = 0.0002, 1 / 2e9
BLOCK_BYTES = 1 << 20
"""Assumed block size before a node or a load has reported one."""
MAX_LINKS = 4096
CHANGING = -1
"""Version of options without an avoided node, which becomes usable with time."""
# A link that seems slow gets no loads, which alone could correct it.
FORGOTTEN_AFTER_S = 120.0
# SSDs are slow while many sessions return at once.
SSD_FORGOTTEN_AFTER_S = 10.0
_SIZE_SHARE = 0.2


_OWN, _OTHER = LoadRate(OWN_LATENCY_S, OWN_S_PER_BYTE), LoadRate(OTHER_LATENCY_S, OTHER_S_PER_BYTE)
_SSD = LoadRate(SSD_LATENCY_S, SSD_S_PER_BYTE)
"""The priors, which learn nothing."""


class NodeLoads:
    """Loads of one pool.

    Mutable: `homes`, the learned costs, the ordered loads, and the temporarily avoided nodes with their failures.
    """

    def __init__(self, holdings: NodeHoldings) -> None:
        self.holdings = holdings
        self.homes: Mapping[str, str] = {}
        """Engine id → name of the node manager that keeps its blocks. Engines without one load nothing."""
        self._largest_slot = 0
        self._block_bytes: float | None = None
        self._rates: dict[tuple[str, str], LoadRate] = {}
        self._own_priors: dict[str, LoadRate] = {}
        self._ssd_rates: dict[str, LoadRate] = {}
        self._ssd_used_at: dict[str, float] = {}
        self._used_at: dict[tuple[str, str], float] = {}
        self._forget_at = 0.0
        self._ordered = OrderedLoads()
        self._quarantine = Quarantine()
        self._failures = 0

    @property
    def block_bytes(self) -> float:
        """Size of one block of the pool in bytes."""
        return self._block_bytes or self._largest_slot or BLOCK_BYTES

    def set_nodes(self, homes: Mapping[str, str], slots: Mapping[str, int]) -> None:
        """Set the engines' own nodes, and the size in bytes of the largest block on each node."""
        self.homes, self._largest_slot = homes, max(slots.values(), default=0)

    def seconds(self, home: str, node: str, blocks: int, ssd_blocks: int = 0) -> float:
        """Return the expected seconds to load `blocks` from a node into an engine whose own node is `home`.

        `ssd_blocks` of them are only on the node's SSD. Ordered loads that have not ended come first.
        """
        size, ordered = self.block_bytes, self._ordered
        # A prior may be far too slow, which a wait at its rate would multiply.
        ahead = ordered.on_link(home, node) if (home, node) in self._rates else 0.0
        link_s = self.rate(home, node).seconds(ahead + blocks * size)
        if not ssd_blocks:
            return link_s
        ahead = ordered.on_ssd(node) if node in self._ssd_rates else 0.0
        return link_s + self.ssd_rate(node).seconds(ahead + ssd_blocks * size)

    def transfer_s(self, home: str, node: str, blocks: int, ssd_blocks: int = 0) -> float:
        """Return the same without the wait for ordered loads."""
        size = self.block_bytes
        link_s = self.rate(home, node).seconds(blocks * size)
        return link_s + self.ssd_rate(node).seconds(ssd_blocks * size) if ssd_blocks else link_s

    def untried(self, home: str, node: str, ssd_blocks: int) -> bool:
        """Return whether a link, or a node's SSD if needed, has neither a measurement nor a load in progress."""
        link = (home, node) not in self._rates and not self._ordered.on_link(home, node)
        return link or bool(ssd_blocks and node not in self._ssd_rates and not self._ordered.on_ssd(node))

    def ordered(self, request_id: str, engine_id: str, node: str, blocks: int, ssd_blocks: int) -> None:
        """Count a load of `blocks` that a request's engine makes, until `ended`."""
        home, size = self.homes.get(engine_id), self.block_bytes
        if home is not None and blocks > 0:
            self._ordered.begin(request_id, (home, node), blocks * size, min(ssd_blocks, blocks) * size)

    def ended(self, request_id: str) -> None:
        """Stop counting a request's load: its prefill has begun, or it has no engine any more."""
        self._ordered.end(request_id)

    def check(self) -> None:
        """Raise AssertionError if the sums of ordered loads are wrong."""
        self._ordered.check()

    def ssd_rate(self, node: str) -> LoadRate:
        """Return the learned rate of a node's SSD, or the prior."""
        return self._ssd_rates.get(node) or _SSD

    def rate(self, home: str, node: str) -> LoadRate:
        """Return the learned rate of a link, or the prior."""
        return self._rates.get((home, node)) or (self._own_priors.get(home, _OWN) if home == node else _OTHER)

    def options(self, keys: Sequence[int], now: float, known: LoadOptions | None = None) -> LoadOptions:
        """Return what a prompt can load from usable nodes.

        `known` is returned again if no node's contents have changed, no load has failed, and it left no node out.
        """
        holdings = self.holdings
        if now >= self._forget_at:
            self._forget(now)
        # Both counts only grow, so their sum changes with each of them.
        version = holdings.version + self._failures
        if known is not None and known.version == version and known.costs is self:
            return known
        groups, match = [], holdings.match(keys) if holdings.readable and keys else NO_MATCH
        for blocks, nodes in match.groups:
            names = holdings.names(nodes)
            usable = [name for name in names if self._quarantine.usable(name, now)]
            if len(usable) < len(names):
                version = CHANGING
            if usable:
                groups.append((blocks, usable))
        return LoadOptions(self, groups, holdings.in_dram(match), version)

    def loaded(
        self,
        engine_id: str,
        node: str,
        blocks: int,
        size: int,
        seconds: float,
        now: float,
        ssd_blocks: int = 0,
        request_id: str = "",
    ) -> None:
        """Learn from a load that delivered blocks. Loads of engines without their own node are ignored.

        A `size` or `seconds` of 0 is unknown. If `ssd_blocks` were read from SSD, link and SSD learn in proportion to
        their expected seconds.
        """
        order = self._ordered.take(request_id)
        home = self.homes.get(engine_id)
        if home is None or blocks <= 0:
            return
        per_block = size / blocks if size else self.block_bytes
        if size:
            known = self._block_bytes
            self._block_bytes = per_block if known is None else known + _SIZE_SHARE * (per_block - known)
        if seconds > 0:
            self._learn((home, node), order, blocks * per_block, min(ssd_blocks, blocks) * per_block, seconds, now)
        self._quarantine.succeeded(node)

    def late(
        self,
        engine_id: str,
        node: str,
        blocks: int,
        seconds: float,
        now: float,
        ssd_blocks: int = 0,
        request_id: str = "",
    ) -> None:
        """Learn from a load of `blocks` that was stopped after `seconds`: it would have taken at least as long.

        The node is not avoided. Its SSD or its link may be busy, and loads of other blocks may still pay off.
        """
        home, order, size = self.homes.get(engine_id), self._ordered.take(request_id), self.block_bytes
        if home is not None and blocks > 0 and seconds > self.transfer_s(home, node, blocks, ssd_blocks):
            self._learn((home, node), order, int(blocks * size), min(ssd_blocks, blocks) * size, seconds, now)

    def _learn(
        self, link: tuple[str, str], order: OrderedLoad | None, size: float, ssd_size: float, seconds: float, now: float
    ) -> None:
        home, node = link
        if order is not None and order.link == link:
            # Its time includes the wait for the loads before it.
            size, ssd_size = size + order.link_ahead, ssd_size + order.ssd_ahead if ssd_size else 0.0
        if link not in self._rates:
            if len(self._rates) >= MAX_LINKS:
                self._drop(next(iter(self._rates)))
            # A copy of the prior, which is shared and learns nothing.
            prior = self.rate(home, node)
            self._rates[link] = LoadRate(prior.latency_s, prior.s_per_byte)
        link_s, ssd_s = self._rates[link].seconds(size), 0.0
        if ssd_size:
            ssd = self._ssd_rates.setdefault(node, LoadRate(SSD_LATENCY_S, SSD_S_PER_BYTE))
            ssd_s = ssd.seconds(ssd_size)
            self._ssd_used_at[node] = now
            ssd.observe(int(ssd_size), seconds * ssd_s / (link_s + ssd_s))
        self._rates[link].observe(int(size), seconds * link_s / (link_s + ssd_s))
        self._set_own_prior(home)
        self._used_at[link] = now

    def failed(self, node: str, now: float) -> None:
        """Avoid a node that was unreadable, longer after each consecutive failure, up to 30 s."""
        self._quarantine.failed(node, now)
        self._failures += 1

    def links(self) -> list[tuple[str, str, LoadRate]]:
        """Return (the engine's own node, holder, learned rate) of each used link, in order."""
        return [(home, node, rate) for (home, node), rate in sorted(self._rates.items())]

    def _forget(self, now: float) -> None:
        for link in [link for link, at in self._used_at.items() if now - at >= FORGOTTEN_AFTER_S]:
            self._drop(link)
        for node in [node for node, at in self._ssd_used_at.items() if now - at >= SSD_FORGOTTEN_AFTER_S]:
            del self._ssd_rates[node], self._ssd_used_at[node]
        # Not at each lookup, because it passes over all links.
        self._forget_at = now + SSD_FORGOTTEN_AFTER_S

    def _set_own_prior(self, home: str) -> None:
        """Derive the prior of an own node from the cheapest link to other nodes, until its first load."""
        known = (home, home) in self._rates
        others = [] if known else [rate for (at, _), rate in self._rates.items() if at == home]
        if not others:
            self._own_priors.pop(home, None)
            return
        latency_s, s_per_byte = min(other.latency_s for other in others), min(other.s_per_byte for other in others)
        self._own_priors[home] = LoadRate(
            min(OWN_LATENCY_S, latency_s * OWN_LATENCY_S / OTHER_LATENCY_S),
            min(OWN_S_PER_BYTE, s_per_byte * OWN_S_PER_BYTE / OTHER_S_PER_BYTE),
        )

    def _drop(self, link: tuple[str, str]) -> None:
        del self._rates[link], self._used_at[link]
        self._set_own_prior(link[0])
