"""The picture of the flow: arrives left, served right, one row per region, width is the rate on one scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from controlplane.platform.format import percent
from web.regions.region_rows import RegionRow

ROW, TOP = 118, 28
LEFT, RIGHT, BAR = 170, 520, 8
_THICKEST = 78.0
_THINNEST = 1.5


@dataclass(frozen=True, slots=True)
class Ribbon:
    """One origin and destination; `path` is an SVG path."""

    path: str
    forwarded: bool


@dataclass(frozen=True, slots=True)
class Label:
    """Words at a place."""

    x: float
    y: float
    words: str


@dataclass(frozen=True, slots=True)
class Bar:
    """What arrives in a region, or what is served there."""

    x: float
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class Flow:
    """Everything that the template draws."""

    height: int
    ribbons: tuple[Ribbon, ...]
    bars: tuple[Bar, ...]
    names: tuple[Label, ...]
    notes: tuple[Label, ...]
    """What arrives in each region and where it goes, and what is served there."""
    shares: tuple[Label, ...]
    """On the ribbons of what stays."""
    words: str
    """The same as a sentence."""


def flow(rows: Sequence[RegionRow]) -> Flow:
    """Return the picture of these rows, in their order."""
    most = max((max(row.arriving_per_s, row.served_per_s) for row in rows), default=0.0)
    scale = _THICKEST / most if most else 0.0
    middles = {row.name: TOP + at * ROW + ROW / 2 for at, row in enumerate(rows)}
    leaves = {row.name: middles[row.name] - row.arriving_per_s * scale / 2 for row in rows}
    lands = {row.name: middles[row.name] - row.served_per_s * scale / 2 for row in rows}
    bars = [
        bar
        for row in rows
        for bar in (
            Bar(LEFT, leaves[row.name], max(1.0, row.arriving_per_s * scale)),
            Bar(RIGHT - BAR, lands[row.name], max(1.0, row.served_per_s * scale)),
        )
    ]
    shares = [
        Label(LEFT + BAR + 12, leaves[row.name] + row.local_per_s * scale / 2 + 4, _local(row))
        for row in rows
        if row.local_per_s
    ]
    ribbons = [_ribbon(leaves, lands, row.name, row.name, row.local_per_s * scale) for row in rows if row.local_per_s]
    ribbons += [
        _ribbon(leaves, lands, row.name, region, max(_THINNEST, rate * scale))
        for row in rows
        for region, rate in row.forwarded_per_s.items()
        if region in lands
    ]
    told = [
        f"{row.name} forwards {rate:.1f} requests per second to {region}"
        for row in rows
        for region, rate in row.forwarded_per_s.items()
    ]
    names = [Label(x, middles[row.name] - 18, row.name) for row in rows for x in (14, RIGHT + 14)]
    notes = [Label(14, middles[row.name] + 16 * line, words) for row in rows for line, words in enumerate(_notes(row))]
    notes += [Label(RIGHT + 14, middles[row.name], f"{row.served_per_s:.1f}/s served") for row in rows]
    words = "; ".join(told) or "No region forwards requests"
    height = TOP + ROW * len(rows)
    return Flow(height, tuple(ribbons), tuple(bars), tuple(names), tuple(notes), tuple(shares), words)


def _local(row: RegionRow) -> str:
    return f"{row.local_per_s:.1f}/s local, {percent(1 - row.forwarded_share)}"


def _notes(row: RegionRow) -> list[str]:
    sent = [
        f"{rate:.1f}/s to {region}, {percent(rate / row.arriving_per_s)}"
        for region, rate in sorted(row.forwarded_per_s.items(), key=lambda each: -each[1])
    ]
    return [f"{row.arriving_per_s:.1f}/s arrive", *sent[:3]]


def _ribbon(leaves: dict[str, float], lands: dict[str, float], origin: str, region: str, thick: float) -> Ribbon:
    """Return one ribbon, and move on where the next one leaves and lands."""
    y0, y1 = leaves[origin], lands[region]
    leaves[origin], lands[region] = y0 + thick, y1 + thick
    x0, x1 = LEFT + BAR + 1, RIGHT - BAR - 1
    middle = (x0 + x1) / 2
    path = (
        f"M{x0} {y0:.1f}C{middle} {y0:.1f} {middle} {y1:.1f} {x1} {y1:.1f}v{thick:.1f}"
        f"C{middle} {y1 + thick:.1f} {middle} {y0 + thick:.1f} {x0} {y0 + thick:.1f}z"
    )
    return Ribbon(path, origin != region)
