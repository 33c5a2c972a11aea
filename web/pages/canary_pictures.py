"""The pictures of a comparison of arms as numbers in percent, which templates draw as SVG, each with its table."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from controlplane.canaries.look import ArmFigures, CanaryLook, LookPoint
from planning.trials.arm_window import bucket_end_s
from web.live.wording import NARROW_SPACE, clock_time, duration, percent, setting

_LEFT, _RIGHT, _TOP, _BOTTOM = 9.0, 98.0, 5.0, 88.0
"""The plot within its picture, percent."""
_MOMENTS = (0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 60.0, 120.0, 300.0)
_APART = 8.0
_SHARES = (0.5, 0.75, 0.9, 0.95, 0.99)
_ROWS = 12


@dataclass(frozen=True, slots=True)
class Tick:
    """A line of the grid, or a word on the axis."""

    at: str
    words: str


@dataclass(frozen=True, slots=True)
class Picture:
    """Lines of both arms: the points of polylines in a box of 100 × 100, one per stretch without gaps."""

    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    base: tuple[str, ...]
    tried: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    """The same as a table: moment or percentile, then base and tried."""
    summary: str


def distribution(look: CanaryLook) -> Picture | None:
    """Return which share of the requests had its first token after how long; None: neither arm had any."""
    ends = [bucket_end_s(each) for side in (look.base, look.tried) for each in side.ttft]
    if not ends:
        return None
    low = max([each for each in _MOMENTS if each <= min(ends)] or [_MOMENTS[0]])
    high = max(max(ends) * 1.05, low * 2)

    def x(seconds: float) -> float:
        return _LEFT + math.log(max(seconds, low) / low) / math.log(high / low) * (_RIGHT - _LEFT)

    return Picture(
        across=_spaced([(x(each), setting(each)) for each in _MOMENTS if low <= each <= high]),
        up=tuple(Tick(_percent(_y(each)), _share_tick(each)) for each in (0.0, 0.5, 0.9, 1.0)),
        base=_steps(look.base, x),
        tried=_steps(look.tried, x),
        rows=tuple((f"p{each * 100:.0f}", _at(look.base, each), _at(look.tried, each)) for each in _SHARES),
        summary=f"Times to first token: half within {_at(look.tried, 0.5)} in the canary and "
        f"{_at(look.base, 0.5)} live; 90{NARROW_SPACE}% within {_at(look.tried, 0.9)} and {_at(look.base, 0.9)}",
    )


def late_course(look: CanaryLook) -> Picture | None:
    """Return the share of late requests as it went, ten seconds a point; None: there are not two points yet."""
    points = look.points
    if len(points) < 2:
        return None
    first, last = points[0].at, points[-1].at
    known = [each for point in points for each in (point.base_late, point.tried_late) if each is not None]
    top = max(0.1, math.ceil(max(known, default=0.0) * 10 - 1e-9) / 10)

    def runs(read: Callable[[LookPoint], float | None]) -> tuple[str, ...]:
        """Return one polyline per stretch without gaps."""
        found: list[list[str]] = [[]]
        for point in points:
            value = read(point)
            if value is None:
                found.append([])
                continue
            x = _LEFT + (point.at - first) / (last - first) * (_RIGHT - _LEFT)
            found[-1].append(f"{x:.2f},{_y(value / top):.2f}")
        return tuple(" ".join(run) for run in found if run)

    middle = first + (last - first) / 2
    ticks = [(_LEFT + 4, first), ((_LEFT + _RIGHT) / 2, middle), (_RIGHT - 4, last)]
    return Picture(
        across=tuple(Tick(_percent(at), clock_time(moment)) for at, moment in ticks),
        up=tuple(Tick(_percent(_y(each)), f"{each * top * 100:g}") for each in (0.0, 0.5, 1.0)),
        base=runs(lambda point: point.base_late),
        tried=runs(lambda point: point.tried_late),
        rows=tuple(
            (clock_time(point.at), share_words(point.base_late), share_words(point.tried_late))
            for point in points[-_ROWS:]
        ),
        summary=f"Share of late requests over {duration(last - first)}: at the end "
        f"{share_words(points[-1].tried_late)} in the canary, {share_words(points[-1].base_late)} live",
    )


def share_words(share: float | None) -> str:
    """Return a share in words; a dash where it is not known."""
    return "—" if share is None else percent(share)


def _steps(side: ArmFigures, x: Callable[[float], float]) -> tuple[str, ...]:
    total = sum(side.ttft.values())
    if not total:
        return ()
    points, seen = [], 0
    for bucket in sorted(side.ttft):
        points.append(f"{x(bucket_end_s(bucket - 1)):.2f},{_y(seen / total):.2f}")
        seen += side.ttft[bucket]
        points.append(f"{x(bucket_end_s(bucket)):.2f},{_y(seen / total):.2f}")
    return (" ".join([*points, f"{_RIGHT:.2f},{_y(1.0):.2f}"]),)


def _at(side: ArmFigures, share: float) -> str:
    left = share * sum(side.ttft.values())
    if not side.ttft:
        return "—"
    for bucket in sorted(side.ttft):
        left -= side.ttft[bucket]
        if left <= 1e-9:
            return duration(bucket_end_s(bucket))
    return duration(bucket_end_s(max(side.ttft)))


def _spaced(places: list[tuple[float, str]]) -> tuple[Tick, ...]:
    ticks: list[Tick] = []
    last = -_APART
    for at, words in places:
        if at - last >= _APART:
            ticks.append(Tick(_percent(at), words))
            last = at
    return tuple(ticks)


def _share_tick(share: float) -> str:
    return f"{share * 100:.0f}{NARROW_SPACE}%" if share == 1 else f"{share * 100:.0f}"


def _y(share: float) -> float:
    return _BOTTOM - share * (_BOTTOM - _TOP)


def _percent(value: float) -> str:
    return f"{value:.2f}%"
