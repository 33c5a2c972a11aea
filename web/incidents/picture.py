"""The picture of an incident's window: work of each engine and on-time share on one time axis, drawn as SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from controlplane.history.bucket import ENGINE_FLOATS, LOST, POOL_FLOATS, Column
from controlplane.history.collector import FINE_S
from controlplane.history.rollups import COARSE_S
from controlplane.platform.format import brief_percent, clock_time, duration, percent
from web.history.past import past_columns
from web.history.past_range import Range, Stretch
from web.live.feed import fleet_feed
from web.live.scope import Scope
from web.shell.chart import Tick, place, point, x, y

MAX_ROWS = 24
BEFORE_S, AFTER_S = 300.0, 120.0
FINE_SPAN_S = 3_600.0
"""Longer windows are drawn from the columns of two minutes."""
STEPS = 9
"""Colors of the scale of work; the last one is TOP_S and more."""
TOP_S = 16.0
_TICKS = 5
Axis = Callable[[float], float]
"""Maps a Unix second to its position in percent of the width."""
_SECONDS, _ON_TIME, _REQUESTS = (
    ENGINE_FLOATS.index("seconds"),
    POOL_FLOATS.index("on_time"),
    POOL_FLOATS.index("requests_per_s"),
)


@dataclass(frozen=True, slots=True)
class EngineBand:
    """One engine: its runs of equal color as (color or lost, x, width), and its highest work."""

    name: str
    top: str
    middle: str
    cells: tuple[tuple[str, str, str], ...]
    most: str


@dataclass(frozen=True, slots=True)
class IncidentPicture:
    """Positions in percent of width and height."""

    bands: tuple[EngineBand, ...]
    band_height: str
    hidden: int
    """Number of engines with the least work, which are not drawn."""
    lines: tuple[str, ...]
    """Polylines of the on-time share; a gap is one in the record."""
    target: str
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    marks: tuple[Tick, ...]
    summary: str


def incident_picture(
    onset: float, end: float, now: float, marks: Sequence[tuple[float, str]], scope: Scope, target: float
) -> IncidentPicture | None:
    """Return the picture from BEFORE_S before the onset to after the end (Unix seconds); None without history."""
    last, first = min(now, end + AFTER_S), onset - BEFORE_S
    column_s = FINE_S if last - first <= FINE_SPAN_S else COARSE_S
    shown = Range("incident", int(last // column_s - first // column_s + 1) * column_s, column_s, column_s, 1)
    stretch = Stretch(shown, int(last // column_s), int(last // column_s), live=False)
    columns = past_columns(stretch, fleet_feed().recent(scope).columns, scope).columns
    if not columns:
        return None
    # Nothing was recorded before the program started.
    first = max(first, float(columns[0].index * column_s))

    def across(at: float) -> float:
        return x(min(1.0, max(0.0, (at - first) / (last - first))))

    shares = [(column.index * column_s, _share(column)) for column in columns]
    known = [(at, share) for at, share in shares if share is not None]
    bands, hidden = _bands(columns, column_s, across)
    low = min((share for _, share in known), default=1.0)
    bottom = max(0.0, math.floor(low * 10) / 10) if low < 0.9 else 0.8

    def up(share: float) -> float:
        return (share - bottom) / (1.0 - bottom)

    times = [first + number * (last - first) / _TICKS for number in range(_TICKS + 1)]
    return IncidentPicture(
        bands=bands,
        band_height=place(92.0 / max(1, len(bands)) * 0.88),
        hidden=hidden,
        lines=_lines([(at, across(at + column_s / 2), max(0.0, up(share))) for at, share in known], column_s),
        target=place(y(up(target))),
        across=tuple(Tick(place(across(at)), clock_time(at)) for at in times[:-1]),
        up=tuple(Tick(place(y(up(share))), brief_percent(share)) for share in (bottom, (1 + bottom) / 2, 1.0)),
        marks=tuple(Tick(place(across(at)), words) for at, words in marks if first <= at <= last),
        summary=f"On-time share, lowest {percent(low)}, and the work of {len(bands)} engines",
    )


def _lines(points: Sequence[tuple[float, float, float]], column_s: int) -> tuple[str, ...]:
    """Return the polylines of points (Unix second, x, share); a missing column ends one."""
    lines: list[list[str]] = []
    before = -math.inf
    for at, across, share in points:
        if at - before > 1.5 * column_s:
            lines.append([])
        lines[-1].append(point(across, share))
        before = at
    return tuple(" ".join(line) for line in lines)


def _share(column: Column) -> float | None:
    """Return the on-time share of all pools of the column, by their requests."""
    known = [(item[_ON_TIME], item[_REQUESTS]) for item in column.pools.values() if not math.isnan(item[_ON_TIME])]
    weight = sum(per_s for _, per_s in known)
    return sum(share * per_s for share, per_s in known) / weight if weight else None


def _bands(columns: Sequence[Column], column_s: int, across: Axis) -> tuple[tuple[EngineBand, ...], int]:
    roster = columns[-1].roster
    work = [column.floats_for(roster, _SECONDS) for column in columns]
    states = [column.codes_for(roster, 0) for column in columns]
    most = {
        row: max((item[row] for item in work if not math.isnan(item[row])), default=0.0)
        for row in range(len(roster.names))
    }
    rows = sorted(sorted(most, key=lambda row: -most[row])[:MAX_ROWS])
    height = 92.0 / max(1, len(rows))
    bands = []
    for number, row in enumerate(rows):
        runs: list[tuple[str, float, float]] = []
        for position, column in enumerate(columns):
            color = "lost" if states[position][row] == LOST else _color(work[position][row])
            begin, end = across(column.index * column_s), across((column.index + 1) * column_s)
            if runs and runs[-1][0] == color and begin - runs[-1][2] < 0.1:
                runs[-1] = (color, runs[-1][1], end)
            else:
                runs.append((color, begin, end))
        cells = tuple((color, place(begin), place(end - begin)) for color, begin, end in runs if color)
        top = 2.0 + number * height
        bands.append(EngineBand(roster.names[row], place(top), place(top + 0.44 * height), cells, duration(most[row])))
    return tuple(bands), len(most) - len(rows)


def _color(seconds: float) -> str:
    if math.isnan(seconds):
        return ""
    return str(min(STEPS - 1, int(STEPS * math.log1p(2 * seconds) / math.log1p(2 * TOP_S))))
