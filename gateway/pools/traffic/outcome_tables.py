"""Counts a pool's ended requests by outcome, and who sent them, in tables of bounded size."""

from __future__ import annotations

from typing import Protocol

from gateway.contracts import outcomes
from gateway.contracts.outcomes import UNREAD, OutcomeCounts, PoolOutcomes, Table, length_range, with_others
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
            row = self._rows[name] = [0, 0, 0, 0, 0, self._replaced()]
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

    def _replaced(self) -> int:
        """Make room for a row; return the weight that it takes over."""
        if len(self._rows) < self._max_rows:
            return 0
        lightest = min(self._rows, key=lambda name: self._rows[name][5])
        return self._rows.pop(lightest)[5]


class OutcomeTables:
    """One pool's ended requests since the start. Mutable: the total, and one table per dimension."""

    def __init__(self) -> None:
        self._total = [0, 0, 0, 0, 0]
        self._tenants, self._keys, self._lengths = OutcomeTable(), OutcomeTable(), OutcomeTable()
        self._classes, self._priorities = OutcomeTable(), OutcomeTable()

    def add(self, record: CountedRequest) -> None:
        """Count an ended request. A request that its engine rejected for its content is not counted."""
        outcome = record.outcome
        if outcome == COMPLETED:
            column = outcomes.ON_TIME if record.on_time else outcomes.LATE
        elif outcome in _COLUMNS:
            column = _COLUMNS[outcome]
        else:
            return
        self._total[column] += 1
        self._tenants.add(record.tenant_id, column)
        self._keys.add(record.key_id, column)
        self._lengths.add(UNREAD if record.unread else length_range(record.decision.prompt_tokens), column)
        self._classes.add(record.slo_class, column)
        self._priorities.add(str(record.priority), column)

    def outcomes(self) -> PoolOutcomes:
        """Return the counts so far."""
        total = OutcomeCounts(*self._total)
        return PoolOutcomes(
            total=total,
            tenants=self._tenants.counts(total),
            keys=self._keys.counts(total),
            lengths=self._lengths.counts(total),
            classes=self._classes.counts(total),
            priorities=self._priorities.counts(total),
        )
