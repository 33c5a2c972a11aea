"""The pictures of a what-if as numbers in percent of their width and height, which templates draw as SVG."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from controlplane.whatif.result import Band, Side, WhatIfResult
from web.live.wording import NARROW_SPACE, duration, percent, setting
from web.pages.whatif_words import tokens_words

_LEFT, _RIGHT, _TOP, _BOTTOM = 9.0, 98.0, 5.0, 88.0
"""The plot within its picture, percent."""
_MOMENTS = (0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_WORD_HIGH = 4.0
"""Percent of the height that a figure takes on either side of its middle."""
_APART = 7.0
"""Percent of the width that two words on the axis need."""
_PERCENTILES = (10, 25, 50, 75, 90, 95, 99)


@dataclass(frozen=True, slots=True)
class Tick:
    """A line of the grid, or a word on the axis."""

    at: str
    words: str


@dataclass(frozen=True, slots=True)
class Curve:
    """One side's line; `points` for a polyline in a box of 100 × 100."""

    side: str
    points: str


@dataclass(frozen=True, slots=True)
class Distribution:
    """Which share of the requests had its first token after how long, on a logarithmic axis."""

    moments: tuple[Tick, ...]
    shares: tuple[Tick, ...]
    curves: tuple[Curve, ...]
    slo: Tick
    rows: tuple[tuple[str, ...], ...]
    """The same as a table: percentile, then actual (where known), base and draft."""
    summary: str


@dataclass(frozen=True, slots=True)
class BandMark:
    """One range of prompt lengths: where its marks stand, in percent, and what they say."""

    at: str
    left: str
    right: str
    label: str
    base: str
    draft: str
    draft_low: str
    draft_high: str
    actual: str
    words: str
    word_at: str
    word_dx: str
    """Pixels beyond `word_at` at which the figure begins."""
    row: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BandPicture:
    """The shares on time by prompt length."""

    shares: tuple[Tick, ...]
    marks: tuple[BandMark, ...]
    summary: str


def distribution(result: WhatIfResult) -> Distribution:
    """Return the distributions of times to first token."""
    sides = [("actual", result.actual), ("base", result.base), ("draft", result.draft)]
    known = [(name, side) for name, side in sides if side is not None and side.ttft_quantiles_s]
    values = [each for _, side in known for each in side.ttft_quantiles_s if each > 0] or [1.0]
    low, high = _range(min(values), max(*values, result.ttft_slo_s))

    def x(seconds: float) -> float:
        share = math.log(max(seconds, low) / low) / math.log(high / low)
        return _LEFT + share * (_RIGHT - _LEFT)

    slo_x = x(result.ttft_slo_s)
    return Distribution(
        moments=_spaced([(x(each), each) for each in _MOMENTS if low <= each <= high], slo_x),
        shares=tuple(Tick(_percent(_y(each)), _share_words(each)) for each in (0.0, 0.5, 0.9, 1.0)),
        curves=tuple(Curve(name, _points(side, x)) for name, side in known),
        slo=Tick(_percent(slo_x), f"SLO {setting(result.ttft_slo_s)}"),
        rows=tuple(
            (f"p{each}", *(duration(side.ttft_quantiles_s[each]) for _, side in known)) for each in _PERCENTILES
        ),
        summary="Times to first token: "
        + "; ".join(
            f"{name} half within {duration(side.ttft_quantiles_s[50])}, 90{NARROW_SPACE}% within "
            f"{duration(side.ttft_quantiles_s[90])}"
            for name, side in known
        ),
    )


def band_picture(result: WhatIfResult) -> BandPicture:
    """Return the shares on time by prompt length."""
    shares = [
        each for band in result.bands for each in (band.base.low, band.draft.low, band.actual) if each is not None
    ]
    floor = min(max(0.0, math.floor(min(shares, default=0.0) * 10 - 1e-9) / 10), 0.9)

    def y(share: float) -> str:
        return _percent(_y((share - floor) / (1 - floor)))

    width = (_RIGHT - _LEFT) / max(1, len(result.bands))
    marks = tuple(_mark(band, _LEFT + (number + 0.5) * width, y) for number, band in enumerate(result.bands))
    ticks = tuple(Tick(y(each), _share_words(each)) for each in (floor, (floor + 1) / 2, 1.0))
    words = "; ".join(
        f"{mark.label} tokens: draft {percent(band.draft.mean)}, base {percent(band.base.mean)}"
        for mark, band in zip(marks, result.bands, strict=True)
    )
    return BandPicture(ticks, marks, f"Share on time by prompt length. {words}")


def _mark(band: Band, at: float, y: Callable[[float], str]) -> BandMark:
    label = f"{tokens_words(band.from_tokens)}–{tokens_words(band.to_tokens)}"
    actual = "" if band.actual is None else percent(band.actual)
    # The dashes of what really happened would run through the figure.
    dashed = band.actual is not None and abs(float(y(band.actual)[:-1]) - float(y(band.draft.mean)[:-1])) < _WORD_HIGH
    return BandMark(
        at=_percent(at),
        left=_percent(at - 2.6),
        right=_percent(at + 2.6),
        label=label,
        base=y(band.base.mean),
        draft=y(band.draft.mean),
        draft_low=y(band.draft.low),
        draft_high=y(band.draft.high),
        actual="" if band.actual is None else y(band.actual),
        words=f"{band.draft.mean * 100:.1f}",
        word_at=_percent(at + 2.6 if dashed else at),
        word_dx="4" if dashed else "9",
        row=(label, f"{band.requests:,}", actual or "—", percent(band.base.mean), percent(band.draft.mean)),
    )


def _share_words(share: float) -> str:
    return f"{share * 100:.0f}{NARROW_SPACE}%" if share == 1 else f"{share * 100:.0f}"


def _points(side: Side, x: Callable[[float], float]) -> str:
    return " ".join(
        f"{x(seconds):.2f},{_y(side.answered_share * number / 100):.2f}"
        for number, seconds in enumerate(side.ttft_quantiles_s)
    )


def _spaced(places: list[tuple[float, float]], taken: float) -> tuple[Tick, ...]:
    """Return the moments that find room on the axis beside the objective's word."""
    ticks: list[Tick] = []
    last = -_APART
    for at, seconds in places:
        if at - last >= _APART and abs(at - taken) >= _APART * 1.3:
            ticks.append(Tick(_percent(at), setting(seconds)))
            last = at
    return tuple(ticks)


def _range(low: float, high: float) -> tuple[float, float]:
    low = max([each for each in _MOMENTS if each <= low] or [_MOMENTS[0]])
    return low, max(high * 1.05, low * 2)


def _y(share: float) -> float:
    return _BOTTOM - share * (_BOTTOM - _TOP)


def _percent(value: float) -> str:
    return f"{value:.2f}%"
