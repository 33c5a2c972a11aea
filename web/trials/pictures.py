"""The charts of trials: positions in percent of width and height, drawn as SVG by templates/trials."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from controlplane.platform.format import NARROW_SPACE, setting
from web.shell.chart import LEFT, RIGHT, Tick, place, y

_MOMENTS = (0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_APART = 7.5
"""Minimum distance between two words on the axis, in percent of the width."""

Axis = Callable[[float], float]
"""Maps a value to its position in percent of the width."""


@dataclass(frozen=True, slots=True)
class Line:
    """One side's line; `points` is a polyline in a box of 100 × 100."""

    side: str
    """One of draft, base, or actual."""
    points: str


@dataclass(frozen=True, slots=True)
class Picture:
    """The lines of both sides and of the actual run."""

    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    lines: tuple[Line, ...]
    rows: tuple[tuple[str, ...], ...]
    """The data as a table: time or percentile, then each side."""
    summary: str
    slo: Tick | None = None


def ttft_picture(
    times_s: Sequence[float],
    lines: Callable[[Axis], Iterable[Line]],
    rows: Iterable[tuple[str, ...]],
    summary: str,
    slo_s: float | None = None,
) -> Picture:
    """Return the cumulative distribution of TTFT on a logarithmic axis.

    The axis covers `times_s`; `lines` draws the sides on it.
    """
    low_s = max([item for item in _MOMENTS if item <= min(times_s)] or [_MOMENTS[0]])
    # The objective's word is below its line, and needs space on the right.
    high_s = max(max(times_s) * 1.05, (slo_s or 0.0) * 1.3, low_s * 2)

    def x(seconds: float) -> float:
        return LEFT + math.log(max(seconds, low_s) / low_s) / math.log(high_s / low_s) * (RIGHT - LEFT)

    return Picture(
        across=_spaced([(x(item), item) for item in _MOMENTS if low_s <= item <= high_s], x(slo_s) if slo_s else None),
        up=share_ticks((0.0, 0.5, 0.9, 1.0), lambda share: place(y(share))),
        lines=tuple(lines(x)),
        rows=tuple(rows),
        summary=summary,
        slo=Tick(place(x(slo_s)), f"SLO {setting(slo_s)}") if slo_s else None,
    )


def share_ticks(shares: Iterable[float], at: Callable[[float], str]) -> tuple[Tick, ...]:
    """Return the ticks of a percent axis; only 100 % shows the unit."""
    return tuple(Tick(at(share), f"{share * 100:.0f}{f'{NARROW_SPACE}%' if share == 1 else ''}") for share in shares)


def _spaced(marks: Iterable[tuple[float, float]], taken: float | None) -> tuple[Tick, ...]:
    """Return the tick labels that fit on the axis next to the objective's label."""
    ticks: list[Tick] = []
    last = -_APART
    for at, seconds in marks:
        if at - last >= _APART and (taken is None or abs(at - taken) >= _APART * 1.3):
            ticks.append(Tick(place(at), setting(seconds)))
            last = at
    return tuple(ticks)
