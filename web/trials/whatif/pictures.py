"""The charts of a what-if, each with its table."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from controlplane.platform.format import NARROW_SPACE, duration, percent, short
from controlplane.trials.whatif.result import Band, Side, WhatIfResult
from web.shell.chart import LEFT, RIGHT, place, point, y
from web.trials.pictures import Axis, Line, Picture, share_ticks, ttft_picture

_WORD_HIGH = 4.0
"""Percent of the height that a figure needs above and below its middle."""
_PERCENTILES = (10, 25, 50, 75, 90, 95, 99)


def distribution(result: WhatIfResult) -> Picture:
    """Return the distributions of TTFT; rows are actual (if known), base, and draft."""
    sides = [("actual", result.actual), ("base", result.base), ("draft", result.draft)]
    known = [(name, side) for name, side in sides if side is not None and side.ttft_quantiles_s]

    def within(side: Side, percentile: int) -> str:
        return duration(side.ttft_quantiles_s[percentile])

    return ttft_picture(
        [ttft_quantile for _, side in known for ttft_quantile in side.ttft_quantiles_s if ttft_quantile > 0] or [1.0],
        lambda x: (Line(name, _points(side, x)) for name, side in known),
        ((f"p{item}", *(within(side, item) for _, side in known)) for item in _PERCENTILES),
        "Times to first token: "
        + "; ".join(
            f"{name} half within {within(side, 50)}, 90{NARROW_SPACE}% within {within(side, 90)}"
            for name, side in known
        ),
        result.ttft_slo_s,
    )


def band_picture(result: WhatIfResult) -> dict[str, Any]:
    """Return the on-time shares by prompt length."""
    shares = [
        item for band in result.bands for item in (band.base.low, band.draft.low, band.actual) if item is not None
    ]
    floor = min(max(0.0, math.floor(min(shares, default=0.0) * 10 - 1e-9) / 10), 0.9)

    def height(share: float) -> str:
        return place(y((share - floor) / (1 - floor)))

    width = (RIGHT - LEFT) / max(1, len(result.bands))
    marks = [_mark(band, LEFT + (number + 0.5) * width, height) for number, band in enumerate(result.bands)]
    rows = [
        (
            _label(band),
            f"{band.requests:,}",
            percent(band.actual),
            percent(band.base.mean),
            percent(band.draft.mean),
        )
        for band in result.bands
    ]
    words = "; ".join(f"{which} tokens: draft {draft}, base {base}" for which, _, _, base, draft in rows)
    return {
        "shares": share_ticks((floor, (floor + 1) / 2, 1.0), height),
        "marks": marks,
        "rows": rows,
        "summary": f"Share on time by prompt length. {words}",
    }


def _mark(band: Band, at: float, height: Callable[[float], str]) -> dict[str, str]:
    """Return one range of prompt lengths: the positions of its marks, in percent, and their labels."""
    # The dashes of the actual value would cross the figure.
    dashed = (
        band.actual is not None
        and abs(float(height(band.actual)[:-1]) - float(height(band.draft.mean)[:-1])) < _WORD_HIGH
    )
    return {
        "at": place(at),
        "left": place(at - 2.6),
        "right": place(at + 2.6),
        "label": _label(band),
        "base": height(band.base.mean),
        "draft": height(band.draft.mean),
        "draft_low": height(band.draft.low),
        "draft_high": height(band.draft.high),
        "actual": "" if band.actual is None else height(band.actual),
        "words": f"{band.draft.mean * 100:.1f}",
        "word_at": place(at + 2.6 if dashed else at),
        # Pixels beyond `word_at` at which the figure begins.
        "word_dx": "4" if dashed else "9",
    }


def _label(band: Band) -> str:
    return f"{short(band.from_tokens)}–{short(band.to_tokens)}"


def _points(side: Side, x: Axis) -> str:
    return " ".join(
        point(x(seconds), side.answered_share * number / 100) for number, seconds in enumerate(side.ttft_quantiles_s)
    )
