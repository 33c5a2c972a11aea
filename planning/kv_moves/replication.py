"""Hot spot replication: copy leading blocks that engines repeatedly load from another node to their own node.

Mooncake §4.2 replicates hot blocks if many requests want them. Replication pays off if the savings outweigh the
transfer: the loads of the last minute, had they come from the own node, would each be cheaper by the difference of the
two links. Such a prefix gets one more copy (planning.kv_moves.replica_count).
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence

from planning.kv_moves.kv_move import MAX_BLOCKS, KvMove
from planning.kv_moves.replica_count import change_replica, holders_of
from routing.ledger.node_loads import NodeLoads

STRIDE = 8
"""Loads are counted at every STRIDE-th block. Prompts that diverge in between share the counts up to it."""
HALF_LIFE_S = 60.0
"""Half-life of a load's weight. Prefixes in the test traces recur within it."""
LEAST_LOADS = 1.5
"""Weight of two loads one half-life apart. A single load is no pattern."""
WORTH = 2.0
"""Minimum ratio of past savings to the transfer's cost: the same loads are expected again, at least half of them."""
MAX_COUNTED = 16_384
"""Maximum positions in prompts with counted loads, the latest ones."""


class HotLoads:
    """Counted loads. Mutable: `_counts`, (node of the engine, key of the last block) → (weighted loads, time)."""

    def __init__(self) -> None:
        self._counts: OrderedDict[tuple[str, int], tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._counts)

    def loaded(self, keys: Sequence[int], home: str, source: str, loads: NodeLoads, now: float) -> KvMove | None:
        """Count a load of these leading blocks by an engine whose own node is `home`. Return a move if it now pays off.

        The count is then reset.
        """
        if not keys or home == source:
            return None
        depths = [*range(STRIDE, len(keys), STRIDE), len(keys)][: MAX_BLOCKS // STRIDE]
        hot = 0
        # The longest leading part that pays becomes one copy.
        for depth in depths:
            count = self._count((home, keys[depth - 1]), now)
            if self._pays(count, depth, home, source, loads):
                hot = depth
        if not hot:
            return None
        for depth in depths:
            # Reset, or the next load would order another copy on the strength of the same loads.
            if depth <= hot:
                del self._counts[home, keys[depth - 1]]
        copies, prefix = len(holders_of(keys[:hot], loads.holdings)), keys[:hot]
        moves = change_replica(
            prefix, copies + 1, {home: 1.0}, loads.holdings, lambda target, holder: loads.seconds(target, holder, hot)
        )
        return moves[0] if moves else None

    def check(self) -> None:
        """Raise AssertionError if the limit is exceeded or a count has no weight."""
        if len(self._counts) > MAX_COUNTED or any(count <= 0 for count, _ in self._counts.values()):
            raise AssertionError("more places than the limit, or one without a load")

    def _pays(self, count: float, blocks: int, home: str, source: str, loads: NodeLoads) -> bool:
        cost_s = loads.seconds(home, source, blocks)
        return count >= LEAST_LOADS and count * (cost_s - loads.seconds(home, home, blocks)) >= WORTH * cost_s

    def _count(self, position: tuple[str, int], now: float) -> float:
        count, at = self._counts.pop(position, (0.0, now))
        # Decays when read, so that no background work is needed.
        count = count * math.pow(0.5, (now - at) / HALF_LIFE_S) + 1.0
        self._counts[position] = count, now
        if len(self._counts) > MAX_COUNTED:
            self._counts.popitem(last=False)
        return count
