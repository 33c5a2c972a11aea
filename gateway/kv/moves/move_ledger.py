"""Judges the copies that moves made by whether they are loaded before they are evicted.

A copy is useful after the first load from it. It is useless if it has left its node, or is old, without a load. It
stays open if an engine that reports no loads was to load it: that load may have used the copy.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

import msgspec

from gateway.contracts.kv_move import NONE, OPEN, USEFUL, USELESS, KvMoveRow

MAX_COPIES = 4096
MAX_KEYS = 131_072
"""Limit of watched blocks of all copies. Beyond it, the oldest copies are judged early."""
MAX_AGE_S = 600.0
"""Maximum age in seconds at which a load is credited to a move."""
GRACE_S = 5.0
"""Seconds after which a node's event of a new block has certainly arrived."""
_JUDGED_AT_A_TIME = 64
"""Copies judged per sweep, which takes far less than a millisecond of the event loop."""


class _Copy(msgspec.Struct):
    """The copy of one move. Mutable: its row so far, and `unseen`."""

    row: KvMoveRow
    keys: tuple[int, ...]
    block_tokens: int
    made_s: float
    unseen: bool = False
    """Whether the result of a load that may have used it is unknown."""


class MoveLedger:
    """The copies that moves made. Mutable: `_copies` in order of creation, `_at` (node → key → copy), and the rows to
    report.
    """

    def __init__(self, holds: Callable[[str, int], bool], judged: Callable[[KvMoveRow], None]) -> None:
        """`holds` returns whether a node holds a block. `judged` receives each copy once, when its worth is known."""
        self._holds, self._judged = holds, judged
        self._copies: OrderedDict[str, _Copy] = OrderedDict()
        self._at: dict[str, dict[int, _Copy]] = {}
        self._keys = 0
        self._changed: dict[str, KvMoveRow] = {}

    def __len__(self) -> int:
        return len(self._copies)

    def ended(self, row: KvMoveRow, keys: Sequence[int], block_tokens: int, now: float) -> None:
        """Add a finished move and its blocks."""
        if not keys:
            self.report(msgspec.structs.replace(row, worth=NONE))
            return
        copy = self._copies[row.order_id] = _Copy(row, tuple(keys), block_tokens, now)
        at = self._at.setdefault(row.target, {})
        for key in keys:
            older = at.get(key)
            if older is None:
                self._keys += 1
            at[key] = copy
        self.report(row)
        while len(self._copies) > MAX_COPIES or self._keys > MAX_KEYS:
            self._close(next(iter(self._copies.values())))

    def loaded(self, node: str, keys: Sequence[int]) -> list[tuple[KvMoveRow, int]]:
        """Record that an engine loaded these blocks from a node; return (row, saved tokens) of the copies."""
        at = self._at.get(node)
        if not at:
            return []
        blocks: dict[str, int] = {}
        for key in keys:
            copy = at.get(key)
            if copy is not None:
                blocks[copy.row.order_id] = blocks.get(copy.row.order_id, 0) + 1
        saved: list[tuple[KvMoveRow, int]] = []
        for order_id, count in blocks.items():
            copy = self._copies[order_id]
            tokens, row, first = count * copy.block_tokens, copy.row, copy.row.worth == OPEN
            copy.row = msgspec.structs.replace(
                row, loads=row.loads + 1, saved_tokens=row.saved_tokens + tokens, worth=USEFUL
            )
            saved.append((copy.row, tokens))
            self.report(copy.row)
            if first:
                self._judged(copy.row)
        return saved

    def unseen(self, node: str, keys: Sequence[int]) -> None:
        """Record that the result of a load of these blocks from a node is unknown."""
        at = self._at.get(node, {})
        for key in keys:
            if (copy := at.get(key)) is not None:
                copy.unseen = True

    def sweep(self, now: float) -> None:
        """Judge copies that have left or are old. Each call checks some of the copies in turn."""
        for order_id in list(self._copies)[:_JUDGED_AT_A_TIME]:
            copy = self._copies[order_id]
            age_s = now - copy.made_s
            # Leaves go before their parents, so that the first block is the last one to leave.
            if age_s > MAX_AGE_S or (age_s > GRACE_S and not self._holds(copy.row.target, copy.keys[0])):
                self._close(copy)
            else:
                self._copies.move_to_end(order_id)

    def take_rows(self, at_most: int) -> list[KvMoveRow]:
        """Return rows that are new or changed since the last call."""
        taken = list(self._changed)[:at_most]
        return [self._changed.pop(order_id) for order_id in taken]

    def check(self) -> None:
        """Raise AssertionError unless copies, blocks and limits agree."""
        if len(self._copies) > MAX_COPIES or self._keys > MAX_KEYS:
            raise AssertionError("more copies or blocks than the limit")
        if self._keys != sum(map(len, self._at.values())) or not all(self._at.values()):
            raise AssertionError("blocks are miscounted")
        for at in self._at.values():
            if any(self._copies.get(copy.row.order_id) is not copy for copy in at.values()):
                raise AssertionError("a block belongs to a copy that is not watched")

    def _close(self, copy: _Copy) -> None:
        row = copy.row
        del self._copies[row.order_id]
        at = self._at.get(row.target, {})
        for key in copy.keys:
            # A later order may have brought the same block, which is its copy now.
            if at.get(key) is copy:
                del at[key]
                self._keys -= 1
        if not at:
            self._at.pop(row.target, None)
        if row.worth == OPEN and not copy.unseen:
            useless = msgspec.structs.replace(row, worth=USELESS)
            self.report(useless)
            self._judged(useless)

    def report(self, row: KvMoveRow) -> None:
        """Queue a new or changed row for the next report."""
        self._changed.pop(row.order_id, None)
        self._changed[row.order_id] = row
        if len(self._changed) > MAX_COPIES:
            del self._changed[next(iter(self._changed))]
