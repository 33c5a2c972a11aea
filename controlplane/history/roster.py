"""Maps engines to their positions in the arrays of a column."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gateway.contracts.fleet_sample import EngineSample


@dataclass(frozen=True, slots=True)
class HistoryRoster:
    """The engines of a column in order, with names and pools. Columns of one topology share one roster."""

    engine_ids: tuple[str, ...]
    names: tuple[str, ...]
    pool_ids: tuple[str, ...]
    row_of: dict[str, int] = field(init=False, repr=False, compare=False)
    """Engine id → row in the arrays."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "row_of", {engine_id: row for row, engine_id in enumerate(self.engine_ids)})

    def __len__(self) -> int:
        return len(self.engine_ids)

    @property
    def rows(self) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """Return ids, names, and pools, as constructor arguments."""
        return self.engine_ids, self.names, self.pool_ids


NO_ENGINES = HistoryRoster((), (), ())


def roster_of(engines: Iterable[EngineSample]) -> HistoryRoster:
    """Return the roster of a sample's engines."""
    rows = [(engine.engine_id, engine.name, engine.pool_id) for engine in engines]
    return HistoryRoster(*(tuple(row[column] for row in rows) for column in range(3)))


def union(
    rosters: Iterable[HistoryRoster], *, last: HistoryRoster = NO_ENGINES, pools: Sequence[str] = ()
) -> HistoryRoster:
    """Return all engines of the rosters, grouped by pool: engines of `last` in its order, then deleted engines.

    `last` is the newest roster. Each engine has its newest name. The pools in `pools` come first, in that order.
    """
    known: dict[str, tuple[str, str]] = {}
    for roster in (*rosters, last):
        for row, engine_id in enumerate(roster.engine_ids):
            known[engine_id] = (roster.names[row], roster.pool_ids[row])
    rank = {
        pool: position
        for position, pool in enumerate(
            dict.fromkeys([*pools, *last.pool_ids, *sorted({p for _, p in known.values()})])
        )
    }
    order = sorted(
        known, key=lambda item: (rank[known[item][1]], last.row_of.get(item, len(last)), known[item][0], item)
    )
    return HistoryRoster(tuple(order), tuple(known[item][0] for item in order), tuple(known[item][1] for item in order))
