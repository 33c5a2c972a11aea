"""What one prompt can load before its prefill: computed once per request, and carried until its dispatch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from kvstore.connector.engine_params import MAX_HOLDERS


class Fetch(msgspec.Struct, frozen=True, gc=False):
    """Blocks to copy from another engine's cache, or from a node, before the prefill starts (Mooncake Alg. 1).

    Fetches exist only if the view allows transfers. Only blocks that the source holds when the prefill starts can be
    copied.
    """

    source_engine_id: str
    """Empty if a node is the source."""
    blocks: int
    """Leading blocks of the prompt to take from the source. Blocks that the chosen engine holds are not transferred."""
    seconds: float
    """Estimated transfer time, included in the decision's compute_s."""
    node: str = ""
    """Name of the source node manager, empty if an engine is the source."""
    ssd_blocks: int = 0
    """The transferred blocks that are only on the node's SSD."""


class LoadCosts(Protocol):
    """What loads cost now (routing.ledger.node_loads)."""

    homes: Mapping[str, str]
    """Engine id → name of the node manager that keeps its blocks. Engines without one load nothing."""

    def seconds(self, home: str, node: str, blocks: int, ssd_blocks: int = 0) -> float:
        """Return the expected seconds to load `blocks` from a node into an engine whose own node is `home`."""

    def transfer_s(self, home: str, node: str, blocks: int, ssd_blocks: int = 0) -> float:
        """Return the same without the wait for ordered loads."""

    def untried(self, home: str, node: str, ssd_blocks: int) -> bool:
        """Return whether a link, or a node's SSD if needed, has neither a measurement nor a load in progress."""


class LoadOptions:
    """The nodes that hold leading blocks of one prompt.

    They stay the same while the contents of nodes do (`version`); costs are always current.
    """

    __slots__ = ("_dram", "costs", "groups", "version")

    def __init__(
        self, costs: LoadCosts, groups: list[tuple[int, list[str]]], dram: Mapping[str, int], version: int
    ) -> None:
        self.costs = costs
        self.groups = groups
        """Holders by number of leading blocks, longest first. Empty: nothing can be loaded."""
        self.version = version
        self._dram = dram

    def onto(self, engine_id: str, held: float) -> list[Fetch]:
        """Return the loads that give the engine more than `held` blocks, the cheapest for each length."""
        home = self.costs.homes.get(engine_id)
        if home is None:
            return []
        ways, first, cost_s = [], int(held), self.costs.seconds
        for blocks, nodes in self.groups:
            if blocks > held:
                # Among equally cheap nodes the first by name, so that the choice is reproducible.
                sources = [(holder, self.on_ssd(holder, first, blocks)) for holder in nodes]
                seconds, node, ssd = min(
                    [(cost_s(home, holder, blocks - first, ssd), holder, ssd) for holder, ssd in sources]
                )
                ways.append(Fetch("", blocks, seconds, node, ssd))
        return ways

    def blocks_on(self, node: str) -> int:
        """Return the number of leading blocks on a node."""
        return max((blocks for blocks, nodes in self.groups if node in nodes), default=0)

    def holders(self, engine_id: str, fetch: Fetch) -> tuple[str, ...]:
        """Return the nodes that can send a load: the decided one, then its fallbacks, cheapest first."""
        home, cost_s = self.costs.homes.get(engine_id, ""), self.costs.seconds
        nodes = [node for held, names in self.groups if held >= fetch.blocks for node in names]
        nodes.sort(key=lambda node: (node != fetch.node, cost_s(home, node, fetch.blocks), node))
        return tuple(nodes[:MAX_HOLDERS])

    def on_ssd(self, node: str, first: int, end: int) -> int:
        """Return how many of the blocks from `first` to `end` a holder has only on SSD."""
        return max(0, end - max(first, self._dram.get(node, 0)))
