"""Counts a pool's ended requests by outcome, and who sent them, in tables of bounded size."""

from __future__ import annotations

from typing import Protocol

from gateway.contracts import outcomes
from gateway.contracts.outcomes import TABLES, UNREAD, OutcomeCounts, PoolOutcomes, Table, length_range, with_others
from gateway.pools.traffic.traffic_window import CANCELLED, COMPLETED, FAILED, REJECTED, EndedRequest

MAX_ROWS = 64
"""Limit of rows per table. A row with more than 1/64 of a table's recent requests is always there."""
HALVED_AFTER = 4096
"""Requests of a table after which the weights of its rows are halved, so that they weigh recent requests."""
_COLUMNS = {FAILED: outcomes.FAILED, REJECTED: outcomes.REJECTED, CANCELLED: outcomes.CANCELLED}


class CountedRequest(EndedRequest, Protocol):
    """The fields of an ended request's record that are counted here."""

    tenant_id: str
    key_id: str
    slo_class: str
    priority: int
    unread: bool


class OutcomeTable:
    """Counts per name, for the busiest names (Metwally et al. 2005, Space-Saving).

    Mutable: five columns and a weight per name, and the number of requests since weights were halved. A name that
    replaces the lightest one takes over its weight, and its columns start at 0.
    """

    def __init__(self, max_rows: int = MAX_ROWS) -> None:
        self._max_rows = max_rows
        self._rows: dict[str, list[int]] = {}
        self._counted = 0

    def add(self, name: str, column: int) -> None:
        """Count one request."""
        row = self._rows.get(name)
        if row is None:
            weight = 0
            if len(self._rows) >= self._max_rows:
                weight = self._rows.pop(min(self._rows, key=lambda other: self._rows[other][5]))[5]
            row = self._rows[name] = [0, 0, 0, 0, 0, weight]
        row[column] += 1
        row[5] += 1
        self._counted += 1
        if self._counted >= HALVED_AFTER:
            self._counted = 0
            for busy in self._rows.values():
                busy[5] //= 2

    def counts(self, total: OutcomeCounts) -> Table:
        """Return the rows, with the remaining requests of `total` in OTHERS."""
        return with_others({name: OutcomeCounts(*row[:5]) for name, row in self._rows.items()}, total)


class OutcomeTables:
    """One pool's ended requests since the start. Mutable: the total, and one table per dimension."""

    def __init__(self) -> None:
        self._total = [0, 0, 0, 0, 0]
        self._tables = tuple(OutcomeTable() for _ in TABLES)

    def add(self, record: CountedRequest) -> None:
        """Count an ended request. A request that its engine rejected for its content is not counted."""
        column = _COLUMNS.get(record.outcome)
        if record.outcome == COMPLETED:
            column = outcomes.ON_TIME if record.on_time else outcomes.LATE
        if column is None:
            return
        self._total[column] += 1
        length = UNREAD if record.unread else length_range(record.decision.prompt_tokens)
        names = record.tenant_id, record.key_id, length, record.slo_class, str(record.priority)
        for table, name in zip(self._tables, names, strict=True):
            table.add(name, column)

    def outcomes(self) -> PoolOutcomes:
        """Return the counts so far."""
        total = OutcomeCounts(*self._total)
        tables = (table.counts(total) for table in self._tables)
        return PoolOutcomes(total=total, **dict(zip(TABLES, tables, strict=True)))
