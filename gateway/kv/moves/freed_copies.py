"""Watches copies that shrinks dropped from nodes, until the shrinks' usefulness is known.

A copy is dropped after some time without a load. If, within the same time, a request for an engine of that node lacks
dropped blocks, it loads them from another node or computes them. The shrink was then useless.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from gateway.contracts.kv_move import NONE, USEFUL, USELESS, KvMoveRow
from planning.kv_moves.replica_count import COLD_S

MISSED_S = COLD_S
MAX_KEYS = 131_072
"""Limit of watched blocks of all copies. A shrink beyond it is not judged."""


class _Freed(msgspec.Struct, frozen=True, gc=False):
    row: KvMoveRow
    keys: tuple[int, ...]
    until_s: float


class FreedCopies:
    """Copies that shrinks dropped. Mutable: `_freed` in order of the drops, `_at` (node → key → move id), and the
    number of keys.
    """

    def __init__(self) -> None:
        self._freed: OrderedDict[str, _Freed] = OrderedDict()
        self._at: dict[str, dict[int, str]] = {}
        self._keys = 0

    def __len__(self) -> int:
        return len(self._freed)

    def went(self, row: KvMoveRow, keys: Sequence[int], now: float) -> KvMoveRow:
        """Watch the blocks that a shrink has dropped from its target; return the row with its worth so far."""
        if not keys or self._keys + len(keys) > MAX_KEYS:
            return msgspec.structs.replace(row, worth=NONE)
        self._freed[row.order_id] = _Freed(row, tuple(keys), now + MISSED_S)
        self._at.setdefault(row.target, {}).update(dict.fromkeys(keys, row.order_id))
        self._keys += len(keys)
        return row

    def wanted(self, node: str, keys: Sequence[int], now: float) -> list[KvMoveRow]:
        """Record the blocks that a request for a node's engine lacks; return the shrinks that were useless."""
        at = self._at.get(node)
        if not at:
            return []
        # In the order of the prompt, without duplicates.
        orders = dict.fromkeys(at[key] for key in keys if key in at)
        freed = [self._close(order_id) for order_id in orders if self._freed[order_id].until_s > now]
        return [msgspec.structs.replace(item.row, worth=USELESS) for item in freed]

    def sweep(self, now: float) -> list[KvMoveRow]:
        """Return the shrinks that were useful, because no request has missed their blocks for long enough."""
        due = [order_id for order_id, freed in self._freed.items() if freed.until_s <= now]
        return [msgspec.structs.replace(self._close(order_id).row, worth=USEFUL) for order_id in due]

    def check(self) -> None:
        """Raise AssertionError unless moves, blocks and the limit agree."""
        if self._keys != sum(len(item.keys) for item in self._freed.values()) or self._keys > MAX_KEYS:
            raise AssertionError("blocks are miscounted or over the limit")
        if not all(self._at.values()):
            raise AssertionError("a node without dropped blocks is listed")
        if any(order_id not in self._freed for at in self._at.values() for order_id in at.values()):
            raise AssertionError("a block belongs to a move that is not watched")

    def _close(self, order_id: str) -> _Freed:
        freed = self._freed.pop(order_id)
        self._keys -= len(freed.keys)
        at = self._at.get(freed.row.target, {})
        for key in freed.keys:
            if at.get(key) == order_id:
                del at[key]
        if not at:
            self._at.pop(freed.row.target, None)
        return freed
