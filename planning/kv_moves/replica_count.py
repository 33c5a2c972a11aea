"""Number of copies of a prefix, and which to add or drop: Mooncake's `change_replica` (§3.2.2).

Hot prefixes get one more copy (planning.kv_moves.replication). A copy made by an order is dropped when it is no longer
loaded, so that it takes no space from blocks without another copy. A node's own eviction would eventually drop it too,
but a node does not know which of its blocks other nodes hold.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

import msgspec

from planning.kv_moves.kv_move import REPLICATE, SHRINK, KvMove
from routing.ledger.node_holdings import NodeHoldings

COLD_S = 180.0
"""A copy without a load for this long is cold: three half-lives of the counts that created it."""
UNREAD_S = 60.0
"""The node keeps blocks that were read within this time, because engines of other gateways also load from it."""
MAX_REPLICAS = 4096
MAX_KEYS = 131_072
"""Maximum blocks of watched replicas. Beyond it, the least recently used replica is left to its node's eviction."""
_EXAMINED = 16
_TRIES = 4


def holders_of(keys: Sequence[int], holdings: NodeHoldings) -> list[str]:
    """Return the nodes that hold all of these leading blocks, as far as known."""
    match = holdings.match(keys)
    return sorted({name for blocks, nodes in match.groups if blocks == len(keys) for name in holdings.names(nodes)})


def change_replica(
    keys: Sequence[int],
    copies: int,
    demand: Mapping[str, float],
    holdings: NodeHoldings,
    seconds: Callable[[str, str], float] = lambda _target, _source: 0.0,
) -> list[KvMove]:
    """Return the moves after which `copies` nodes, at least one, hold these leading blocks.

    New copies go to the nodes with the highest `demand` that lack the blocks, each from the holder with the lowest
    `seconds` (of target and source). Copies with the lowest demand are dropped first. Nodes whose contents are not
    completely known neither get nor keep copies.
    """
    holders = holders_of(keys, holdings)
    if not holders:
        return []
    ranked = sorted({*holders, *demand}, key=lambda node: (-demand.get(node, 0.0), node))
    moves = list[KvMove]()
    for node in [item for item in ranked if item not in holders][: max(0, copies - len(holders))]:
        cost_s, source = min((seconds(node, holder), holder) for holder in holders)
        moves.append(KvMove(REPLICATE, source, node, tuple(keys), cost_s))
    kept, *others = [item for item in ranked if item in holders]
    gone = others[max(0, copies - 1) :]
    return moves + [KvMove(SHRINK, kept, node, tuple(keys), 0.0) for node in gone]


class _Replica(msgspec.Struct):
    """One copy made by an order. Mutable."""

    node: str
    keys: tuple[int, ...]
    pool_id: str
    used_s: float
    """When it was last loaded from, or last named in an order."""
    tries: int = 0


class Replicas:
    """Watched copies.

    Mutable: `_replicas` by node and last block, least recently used first; `_at`, node → last blocks.
    """

    def __init__(self) -> None:
        self._replicas: OrderedDict[tuple[str, int], _Replica] = OrderedDict()
        self._at: dict[str, set[int]] = {}
        self._keys = 0

    def __len__(self) -> int:
        return len(self._replicas)

    def made(self, node: str, keys: Sequence[int], pool_id: str, now: float) -> None:
        """Watch a copy made by an order."""
        self._forget((node, keys[-1]))
        self._replicas[node, keys[-1]] = _Replica(node, tuple(keys), pool_id, now)
        self._at.setdefault(node, set()).add(keys[-1])
        self._keys += len(keys)
        while len(self._replicas) > MAX_REPLICAS or self._keys > MAX_KEYS:
            self._forget(next(iter(self._replicas)))

    def loaded(self, node: str, keys: Sequence[int], now: float) -> None:
        """Record that an engine loaded these leading blocks from a node."""
        for key in self._at.get(node, set()).intersection(keys):
            replica = self._replicas[node, key]
            replica.used_s, replica.tries = now, 0
            self._replicas.move_to_end((node, key))

    def cold(self, holdings: NodeHoldings, now: float) -> tuple[KvMove, str] | None:
        """Return an order that drops one cold copy, and its pool.

        The node can keep the copy if other blocks follow it there, so the order is repeated a few times.
        """
        for index in list(self._replicas)[:_EXAMINED]:
            replica = self._replicas[index]
            if now - replica.used_s < COLD_S:
                return None
            holders = holders_of(replica.keys, holdings)
            # The last copy stays, however seldom it is read.
            if replica.node not in holders or len(holders) == 1 or replica.tries == _TRIES:
                self._forget(index)
                continue
            # Counts as a use, so that the next try comes COLD_S later.
            replica.used_s, replica.tries = now, replica.tries + 1
            self._replicas.move_to_end(index)
            # The least demand of all, so that `change_replica` drops this copy.
            demand = {node: float(node != replica.node) for node in holders}
            return change_replica(replica.keys, len(holders) - 1, demand, holdings)[0], replica.pool_id
        return None

    def check(self) -> None:
        """Raise AssertionError unless the limits are kept and the index agrees with the replicas."""
        if len(self._replicas) > MAX_REPLICAS or self._keys > MAX_KEYS:
            raise AssertionError("more replicas or blocks than the limit")
        if self._keys != sum(len(replica.keys) for replica in self._replicas.values()):
            raise AssertionError("blocks are miscounted")
        if {(node, key) for node, keys in self._at.items() for key in keys} != self._replicas.keys():
            raise AssertionError("a replica is listed nowhere, or one that is not there")
        used = [replica.used_s for replica in self._replicas.values()]
        if used != sorted(used):
            raise AssertionError("the replica unused for longest is not the first")

    def _forget(self, index: tuple[str, int]) -> None:
        replica = self._replicas.pop(index, None)
        if replica is not None:
            self._keys -= len(replica.keys)
            self._at[replica.node].discard(index[1])
            if not self._at[replica.node]:
                del self._at[replica.node]
