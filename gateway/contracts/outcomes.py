"""Ended requests by outcome, as one gateway counts them for a pool: in total, and by who sent which kind of request.

Late, failed and rejected requests are three things. Each ended request is in exactly one column.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

ON_TIME, LATE, FAILED, REJECTED, CANCELLED = range(5)
"""Columns of OutcomeCounts."""
OTHERS: Final = ""
"""Name of the requests that no named row of a table contains."""
MAX_SUMMED = 256
"""Limit of rows in a sum. Beyond it, only the rows of the last addend keep their names."""
UNREAD: Final = "unread"
"""Range of prompts that were rejected before their length was known."""
LENGTHS = (0, 1_024, 4_096, 16_384, 65_536)
"""Lower bounds in tokens of the ranges of prompt lengths, by which PoolOutcomes.lengths is keyed as text."""
TABLES = ("tenants", "keys", "lengths", "classes", "priorities")
"""The dimensions of PoolOutcomes."""


class OutcomeCounts(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Ended requests. The first four columns are disjoint and add up to `requests`; cancelled requests are apart."""

    on_time: int = 0
    late: int = 0
    """Completed requests whose first token missed its objective."""
    failed: int = 0
    """Requests that an engine got and whose answer is incomplete or an error."""
    rejected: int = 0
    """Requests that the gateway did not accept."""
    cancelled: int = 0

    @property
    def requests(self) -> int:
        """Return the number of requests that count for the objective."""
        return self.on_time + self.late + self.failed + self.rejected


NO_OUTCOMES = OutcomeCounts()
Table = dict[str, OutcomeCounts]


class PoolOutcomes(msgspec.Struct, frozen=True, kw_only=True):
    """A pool's ended requests since the gateway started: all, and the same requests by each dimension.

    Each table names its busiest rows; the requests of no row are in OTHERS, so that a table's sum is `total`. A row
    counts from when it is named. `since` gives the requests between two samples.
    """

    total: OutcomeCounts = NO_OUTCOMES
    tenants: Table = {}
    """By tenant id."""
    keys: Table = {}
    """By API key id, which is no secret."""
    lengths: Table = {}
    """By prompt length: LENGTHS as text, or UNREAD."""
    classes: Table = {}
    """By SLO class; requests without one are in OTHERS."""
    priorities: Table = {}
    """By priority as text; lower is more urgent."""

    def plus(self, other: PoolOutcomes) -> PoolOutcomes:
        """Return the sum of both, row by row."""
        tables = {name: _sum(getattr(self, name), getattr(other, name)) for name in TABLES}
        return PoolOutcomes(total=_all((self.total, other.total)), **tables)

    def since(self, before: PoolOutcomes | None) -> PoolOutcomes:
        """Return the requests that ended after `before`, an earlier value; all if the gateway restarted."""
        total = _grown(self.total, before.total if before is not None else None)
        if before is None or total is self.total:
            return self
        rows = {name: (getattr(self, name), getattr(before, name)) for name in TABLES}
        # A row that left meanwhile is in OTHERS of both.
        grown = {name: {row: _grown(now[row], old.get(row)) for row in now} for name, (now, old) in rows.items()}
        return PoolOutcomes(total=total, **{name: with_others(table, total) for name, table in grown.items()})


def length_range(prompt_tokens: int) -> str:
    """Return the name of the range that contains a prompt of this length."""
    return _NAMES[sum(prompt_tokens >= bound for bound in LENGTHS[1:])]


_NAMES = tuple(map(str, LENGTHS))


def with_others(rows: Mapping[str, OutcomeCounts], total: OutcomeCounts) -> Table:
    """Return the rows with the requests of `total` that they lack in OTHERS."""
    named = {name: counts for name, counts in rows.items() if name != OTHERS and counts != NO_OUTCOMES}
    known = msgspec.structs.astuple(_all(named.values()))
    rest = [max(0, whole - part) for whole, part in zip(msgspec.structs.astuple(total), known, strict=True)]
    return {**named, OTHERS: OutcomeCounts(*rest)} if any(rest) else named


def _grown(now: OutcomeCounts, before: OutcomeCounts | None) -> OutcomeCounts:
    """Return the growth; `now` itself for a new count from zero, which a lower count shows."""
    if before is None:
        return now
    grown = tuple(map(int.__sub__, msgspec.structs.astuple(now), msgspec.structs.astuple(before)))
    return now if min(grown) < 0 else OutcomeCounts(*grown)


def _sum(one: Table, other: Table) -> Table:
    rows = {name: _all((one.get(name, NO_OUTCOMES), other.get(name, NO_OUTCOMES))) for name in {**one, **other}}
    if len(rows) <= MAX_SUMMED:
        return rows
    # Rows that left their gateway's table would add up for ever.
    return with_others({name: rows[name] for name in other}, _all(rows.values()))


def _all(counts: Iterable[OutcomeCounts]) -> OutcomeCounts:
    return OutcomeCounts(*map(sum, zip(*map(msgspec.structs.astuple, counts), strict=True)))
