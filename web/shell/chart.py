"""Positions in charts, in percent of their width and height, drawn as SVG by templates."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from controlplane.platform.format import duration

LEFT, RIGHT, TOP, BOTTOM = 9.0, 98.0, 5.0, 88.0
"""Bounds of the plot within the chart, in percent."""
_TICKS = 5
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_LEAST_WORDED = 7.0
"""Minimum width in percent of a bar that contains words."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A grid line, or a label on the axis."""

    at: str
    words: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A segment of a bar: its start and its width."""

    term: str
    at: str
    width: str
    middle: str
    words: str = ""


def place(value: float, digits: int = 2) -> str:
    """Return a position or length in SVG format, never below 0."""
    return f"{max(0.0, value):.{digits}f}%"


def x(share: float) -> float:
    """Return the x position for a share of the plot's width, 0..1 from the left."""
    return LEFT + share * (RIGHT - LEFT)


def y(share: float) -> float:
    """Return the y position for a share of the plot's height, 0..1 from the bottom."""
    return BOTTOM - share * (BOTTOM - TOP)


def point(across: float, share: float) -> str:
    """Return one point of a polyline in a box of 100 × 100."""
    return f"{across:.2f},{y(share):.2f}"


def bars(parts: Iterable[tuple[str, float]], whole: float, *, worded: bool = False) -> tuple[Bar, ...]:
    """Return parts (term, seconds) as consecutive bars on a scale that ends at `whole`."""
    pieces, at = [], 0.0
    for term, length in parts:
        if length <= 0:
            continue
        wide = 100 * length / whole
        words = duration(length) if worded and wide >= _LEAST_WORDED else ""
        pieces.append(Bar(term, place(at), place(wide), place(at + wide / 2), words))
        at += wide
    return tuple(pieces)


def ticks(end: float) -> list[float]:
    """Return about _TICKS round values from 0 to the end of a scale."""
    if end <= 0:
        return [0.0]
    rough = end / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * item for item in _STEPS if power * item >= rough - 1e-12)
    return [step * number for number in range(int(end / step + 1e-9) + 1)]
