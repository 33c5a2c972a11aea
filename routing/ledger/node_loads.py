"""Blocks that the engines of one pool may load from node managers, and the learned cost of a load.

Priors, until a link's first loads: a block is as large as the node's largest, the engine's own node sends 2 GB/s after
1 ms, any other 1 GB/s (a link of 10 Gbit/s with its overhead) after 2 ms. They overstate the cost rather than
understate it. A load from another node ends with the same copy into the engine as one from the engine's own node. So
until the own node has been loaded from, it counts as cheaper than the cheapest known link, by the difference of the
priors; a replica on the engine's own machine would otherwise seem dearer than any fast link. Blocks that are on a
node's SSD alone are read there first, at a price of its own: 2 GB/s until the first such load. A link that has been
idle for a while is judged by the priors again: a slow one would otherwise never be retried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kvstore.transfer.quarantine import Quarantine
from routing.cost.load_rate import LoadRate
from routing.ledger.node_holdings import NodeHoldings

OWN_LATENCY_S, OWN_S_PER_BYTE = 0.001, 1 / 2e9
OTHER_LATENCY_S, OTHER_S_PER_BYTE = 0.002, 1 / 1e9
SSD_LATENCY_S, SSD_S_PER_BYTE = 0.0002, 1 / 2e9
BLOCK_BYTES = 1 << 20
"""A block's size where neither a node nor a load has reported one."""
MAX_LINKS = 4096
# A link that seems slow gets no loads, which alone could correct it.
FORGOTTEN_AFTER_S = 120.0
_SIZE_SHARE = 0.2


_OWN, _OTHER = LoadRate(OWN_LATENCY_S, OWN_S_PER_BYTE), LoadRate(OTHER_LATENCY_S, OTHER_S_PER_BYTE)
_SSD = LoadRate(SSD_LATENCY_S, SSD_S_PER_BYTE)
"""The priors; they learn nothing."""


class Load(NamedTuple):
    """One way to get leading blocks of a prompt."""

    seconds: float
    blocks: int
    """Leading blocks that the engine has afterwards; those that it has already do not travel."""
    node: str
    ssd_blocks: int = 0
    """Those of the travelling blocks that are on the node's SSD alone."""


class Loadable:
    """Loadable blocks of one prompt: holders by the length that they hold, longest first, and how much is in DRAM."""

    __slots__ = ("_dram", "_loads", "groups")

    def __init__(self, loads: NodeLoads, groups: list[tuple[int, list[str]]], dram: Mapping[str, int]) -> None:
        self._loads = loads
        self._dram = dram
        self.groups = groups

    def onto(self, engine_id: str, held: float) -> list[Load]:
        """Return the loads that give the engine more than `held` blocks, the cheapest for each length."""
        loads = self._loads
        home = loads.homes.get(engine_id)
        if home is None:
            return []
        ways, first = [], int(held)
        for blocks, nodes in self.groups:
            if blocks > held:
                # Among equally cheap nodes the first by name, so that the choice is reproducible.
                sources = [(holder, self.on_ssd(holder, first, blocks)) for holder in nodes]
                seconds, node, ssd = min(
                    [(loads.seconds(home, holder, blocks - first, ssd), holder, ssd) for holder, ssd in sources]
                )
                ways.append(Load(seconds, blocks, node, ssd))
        return ways

    def on_ssd(self, node: str, first: int, end: int) -> int:
        """Return how many of the blocks from `first` to `end` a node that holds them has on SSD alone."""
        return max(0, end - max(first, self._dram.get(node, 0)))

    def holders(self, engine_id: str, blocks: int) -> list[str]:
        """Return the nodes that hold at least `blocks` blocks, the cheapest for the engine first."""
        home = self._loads.homes.get(engine_id, "")
        nodes = [node for held, names in self.groups if held >= blocks for node in names]
        return sorted(nodes, key=lambda node: (self._loads.seconds(home, node, blocks), node))


class NodeLoads:
    """One pool's loads. Mutable: `homes`, the learned costs, and the nodes that are temporarily avoided."""

    def __init__(self, holdings: NodeHoldings) -> None:
        self.holdings = holdings
        self.homes: Mapping[str, str] = {}
        """Engine id → name of the node manager that keeps its blocks; engines without one load nothing."""
        self._largest_slot = 0
        self._block_bytes: float | None = None
        self._rates: dict[tuple[str, str], LoadRate] = {}
        self._own_priors: dict[str, LoadRate] = {}
        self._ssd_rates: dict[str, LoadRate] = {}
        self._used_at: dict[tuple[str, str], float] = {}
        self._forget_at = 0.0
        self._quarantine = Quarantine()

    @property
    def block_bytes(self) -> float:
        """Bytes of one block of the pool."""
        return self._block_bytes or self._largest_slot or BLOCK_BYTES

    def set_nodes(self, homes: Mapping[str, str], slots: Mapping[str, int]) -> None:
        """Set the engines' own nodes, and of each node the bytes of the largest block that it keeps."""
        self.homes, self._largest_slot = homes, max(slots.values(), default=0)

    def seconds(self, home: str, node: str, blocks: int, ssd_blocks: int = 0) -> float:
        """Return the expected seconds until `blocks` of a node are in an engine whose own node is `home`.

        `ssd_blocks` of them are on the node's SSD alone.
        """
        size = self.block_bytes
        link_s = self.rate(home, node).seconds(blocks * size)
        return link_s + self.ssd_rate(node).seconds(ssd_blocks * size) if ssd_blocks else link_s

    def ssd_rate(self, node: str) -> LoadRate:
        """Return the learned rate of a node's SSD; the prior where nothing is learned."""
        return self._ssd_rates.get(node) or _SSD

    def rate(self, home: str, node: str) -> LoadRate:
        """Return the learned rate of a link; the prior where nothing is learned."""
        return self._rates.get((home, node)) or (self._own_priors.get(home, _OWN) if home == node else _OTHER)

    def loadable(self, keys: Sequence[int], now: float) -> Loadable | None:
        """Return the blocks of a prompt on nodes that may be used; None where there are none."""
        holdings = self.holdings
        if now >= self._forget_at:
            self._forget(now)
        if not holdings.readable or not keys:
            return None
        groups, match = [], holdings.match(keys)
        for blocks, nodes in match.groups:
            names = [name for name in holdings.names(nodes) if self._quarantine.usable(name, now)]
            if names:
                groups.append((blocks, names))
        return Loadable(self, groups, holdings.in_dram(match)) if groups else None

    def loaded(
        self, engine_id: str, node: str, blocks: int, size: int, seconds: float, now: float, ssd_blocks: int = 0
    ) -> None:
        """Learn from a load that brought blocks; one of an engine without a node of its own teaches nothing.

        From a load that read `ssd_blocks` from SSD, link and SSD learn by their parts of the expected seconds.
        """
        home = self.homes.get(engine_id)
        if home is None or blocks <= 0 or size <= 0:
            return
        per_block = size / blocks
        known = self._block_bytes
        self._block_bytes = per_block if known is None else known + _SIZE_SHARE * (per_block - known)
        link = home, node
        if link not in self._rates:
            if len(self._rates) >= MAX_LINKS:
                self._drop(next(iter(self._rates)))
            # A copy of the prior, which is shared and learns nothing.
            prior = self.rate(home, node)
            self._rates[link] = LoadRate(prior.latency_s, prior.s_per_byte)
        ssd_size = min(ssd_blocks, blocks) * per_block
        link_s, ssd_s = self._rates[link].seconds(size), 0.0
        if ssd_size:
            ssd = self._ssd_rates.setdefault(node, LoadRate(SSD_LATENCY_S, SSD_S_PER_BYTE))
            ssd_s = ssd.seconds(ssd_size)
            ssd.observe(int(ssd_size), seconds * ssd_s / (link_s + ssd_s))
        self._rates[link].observe(size, seconds * link_s / (link_s + ssd_s))
        self._set_own_prior(home)
        self._used_at[link] = now
        self._quarantine.succeeded(node)

    def failed(self, node: str, now: float) -> None:
        """Avoid a node that could not be read or was too slow: longer with each failure in a row, up to 30 s."""
        self._quarantine.failed(node, now)

    def links(self) -> list[tuple[str, str, LoadRate]]:
        """Return (the engine's own node, holder, learned rate) of each link that was used, in order."""
        return [(home, node, rate) for (home, node), rate in sorted(self._rates.items())]

    def _forget(self, now: float) -> None:
        for link in [link for link, at in self._used_at.items() if now - at >= FORGOTTEN_AFTER_S]:
            self._drop(link)
        # Not at each lookup, because it passes over all links.
        self._forget_at = now + FORGOTTEN_AFTER_S / 10

    def _set_own_prior(self, home: str) -> None:
        """Judge the own node by the cheapest link from others, until it has been loaded from itself."""
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
        if not any(node == link[1] for _, node in self._rates):
            self._ssd_rates.pop(link[1], None)
