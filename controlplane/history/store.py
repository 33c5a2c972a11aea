"""Stored fleet history: writes columns as roll-ups, and reads them."""

from __future__ import annotations

import hashlib
import logging
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from django.db.models import QuerySet

from controlplane.history.annotation import Annotation, without_replaced
from controlplane.history.bucket import ENGINE_BYTES, ENGINE_FLOATS, Column
from controlplane.history.codec import PoolPart, UnreadableRollupError, decode_part, encode_part, peak_seconds, rows_of
from controlplane.history.models.rollup import Rollup, RollupRoster
from controlplane.history.roster import HistoryRoster
from routing.values.prepared_struct import prepared

logger = logging.getLogger(__name__)


class PoolHistoryFacts(msgspec.Struct, frozen=True):
    """A pool's name, and its policy's main settings."""

    pool_id: str
    name: str
    region: str
    served_model: str
    placement: str
    order: str
    policy_version: int
    ttft_slo_s: float
    tokens_per_s: float
    admission: str = ""
    """Empty: not stored."""


class _RosterData(msgspec.Struct, frozen=True):
    pool: PoolHistoryFacts
    engines: list[tuple[str, str]]
    """(engine id, name)."""


@dataclass(slots=True)
class Past:
    """Columns of one length, their markers, and the newest facts of every pool in them."""

    columns: list[Column] = field(default_factory=list)
    markers: list[Annotation] = field(default_factory=list)
    pools: dict[str, PoolHistoryFacts] = field(default_factory=dict)


def write_columns(
    seconds: int, columns: Sequence[Column], markers: Sequence[Annotation], pools: Mapping[str, PoolHistoryFacts]
) -> int:
    """Store columns of `seconds` seconds, oldest first, and return the number of new rows.

    A stored interval is not changed. A marker is stored with the column that contains its time, or with the first
    column if it is older. Pools without facts are omitted, because their names are unknown. Call inside a transaction.
    """
    rosters: dict[bytes, RollupRoster] = {}
    rows = []
    for position, column in enumerate(columns):
        for pool_id in sorted(column.pools.keys() & pools.keys()):
            mine = [
                marker
                for marker in markers
                if marker.pool_id == pool_id
                and (
                    int(marker.at // seconds) == column.index or (position == 0 and marker.at < column.index * seconds)
                )
            ]
            engine_rows = rows_of(column.roster, pool_id)
            engines = [(column.roster.engine_ids[row], column.roster.names[row]) for row in engine_rows]
            data = msgspec.msgpack.encode(_RosterData(pools[pool_id], engines))
            roster = rosters.get(data) or rosters.setdefault(data, _roster(data))
            rows.append(
                Rollup(
                    seconds=seconds,
                    index=column.index,
                    pool=pool_id,
                    roster=roster,
                    peak_s=peak_seconds(column, engine_rows),
                    data=encode_part(column, pool_id, engine_rows, mine),
                )
            )
    # A process that lost its lease may have stored some of them.
    return len(Rollup.objects.bulk_create(rows, ignore_conflicts=True))


def read_past(seconds: int, first: int, last: int, pools: Collection[str] | None = None) -> Past:
    """Return the stored columns `first`..`last` (both included) of `seconds` seconds, without missing ones.

    `pools` limits the result to these pools.
    """
    rows = _stored(seconds, first, last, pools).order_by("index", "pool").values_list("index", "roster_id", "data")
    parts: dict[int, list[tuple[int, PoolPart]]] = {}
    for index, roster_id, data in rows:
        if (part := _part(data)) is not None:
            parts.setdefault(index, []).append((roster_id, part))
    used = {roster_id for row in parts.values() for roster_id, _ in row}
    rosters = {roster.pk: _read_roster(roster) for roster in RollupRoster.objects.filter(pk__in=used)} if used else {}
    return _assemble(parts, rosters)


def read_pool_values(
    seconds: int, first: int, last: int, pools: Collection[str] | None = None
) -> list[tuple[int, list[float]]]:
    """Return (index, values in the order of POOL_FLOATS) of each stored column and pool, without the engines."""
    rows = _stored(seconds, first, last, pools).order_by("index", "pool").values_list("index", "data")
    return [(index, part.pool) for index, data in rows if (part := _part(data)) is not None]


def read_peaks(
    seconds: int, first: int, last: int, pools: Collection[str] | None = None
) -> dict[str, dict[int, float]]:
    """Return per pool (of `pools`, if given) and column the longest queue in seconds."""
    peaks: dict[str, dict[int, float]] = {}
    rows = _stored(seconds, first, last, pools)
    for pool, index, peak_s in rows.values_list("pool", "index", "peak_s"):
        peaks.setdefault(pool, {})[index] = peak_s
    return peaks


def _part(data: bytes) -> PoolPart | None:
    try:
        return decode_part(bytes(data))
    except UnreadableRollupError as error:
        logger.warning("a roll-up is unreadable and shows as a gap: %s", error)
        return None


def _stored(seconds: int, first: int, last: int, pools: Collection[str] | None) -> QuerySet[Rollup]:
    rows = Rollup.objects.filter(seconds=seconds, index__gte=first, index__lte=last)
    return rows if pools is None else rows.filter(pool__in=pools)


def _roster(data: bytes) -> RollupRoster:
    digest = hashlib.sha256(data).hexdigest()
    return RollupRoster.objects.get_or_create(digest=digest, defaults={"data": data})[0]


def _read_roster(roster: RollupRoster) -> _RosterData:
    return msgspec.msgpack.decode(bytes(roster.data), type=prepared(_RosterData))


def _assemble(parts: Mapping[int, Sequence[tuple[int, PoolPart]]], rosters: Mapping[int, _RosterData]) -> Past:
    past = Past()
    shared: dict[tuple[int, ...], HistoryRoster] = {}
    markers: list[Annotation] = []
    for index, row in sorted(parts.items()):
        together = tuple(roster_id for roster_id, _ in row)
        if together not in shared:
            shared[together] = _joined(rosters[roster_id] for roster_id in together)
        past.columns.append(_column(index, shared[together], [(rosters[roster_key], part) for roster_key, part in row]))
        markers += [marker for _, part in row for marker in part.markers]
        past.pools |= {rosters[item].pool.pool_id: rosters[item].pool for item in together}
    past.markers = without_replaced(markers)
    return past


def _joined(rosters: Iterable[_RosterData]) -> HistoryRoster:
    rows = [(engine_id, name, data.pool.pool_id) for data in rosters for engine_id, name in data.engines]
    return HistoryRoster(*(tuple(row[column] for row in rows) for column in range(3)))


def _column(index: int, roster: HistoryRoster, parts: Sequence[tuple[_RosterData, PoolPart]]) -> Column:
    floats = []
    for series in range(len(ENGINE_FLOATS)):
        joined: array[float] = array("f")
        for _, part in parts:
            joined.extend(part.floats[series])
        floats.append(joined)
    codes = [bytearray(b"".join(part.codes[series] for _, part in parts)) for series in range(len(ENGINE_BYTES))]
    return Column(
        index,
        roster,
        max(part.samples for _, part in parts),
        floats,
        codes,
        {data.pool.pool_id: part.pool for data, part in parts},
        {data.pool.pool_id: part.rejections for data, part in parts if part.rejections},
    )
