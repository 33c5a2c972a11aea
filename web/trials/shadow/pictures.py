"""The charts of a shadow: positions in percent of width and height, drawn as SVG by templates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controlplane.platform.format import NARROW_SPACE, percent, setting, signed
from controlplane.trials.shadow.reading import ShadowFigures
from gateway.contracts.shadow_tally import GAIN_EDGES_S, ShadowEngineShare
from web.shell.chart import BOTTOM, LEFT, RIGHT, Tick, place, y

_GAP = 0.35
SHOWN_ENGINES = 24
_MIDDLE = len(GAIN_EDGES_S) // 2
"""Index of the range for no difference."""
_LEAST_REACH = 4


def gain_picture(figures: ShadowFigures) -> dict[str, Any] | None:
    """Return the distribution of gains over the disagreements; None if there are none."""
    gains = figures.tally.gains
    total = sum(gains)
    if not total:
        return None
    reach = max(_LEAST_REACH, *(abs(at - _MIDDLE) for at, number in enumerate(gains) if number))
    shown = range(_MIDDLE - reach, _MIDDLE + reach + 1)
    width, most = (RIGHT - LEFT) / len(shown), max(gains)
    better, worse = (sum(gains[_MIDDLE + 1 :]) / total, sum(gains[:_MIDDLE]) / total)
    return {
        "bars": [_bar(at, gains[at] / most, LEFT + number * width, width) for number, at in enumerate(shown)],
        "edges": _edges(reach, width),
        "counts": [
            Tick(place(y(share)), f"{share * most:,.0f}") for share in (0.0, 0.5, 1.0) if share != 0.5 or most > 1
        ],
        # The same as a table: range, requests, share.
        "rows": [(_range_words(at), f"{gains[at]:,}", percent(gains[at] / total)) for at in shown if gains[at]],
        "summary": f"Predicted gain in TTFT where the policies differ: {percent(better)} shorter, {percent(worse)} "
        "longer.",
    }


def engine_shifts(figures: ShadowFigures, names: Mapping[str, str]) -> list[tuple[str, ShadowEngineShare, str]]:
    """Return the engines whose share changes most, by name, with the change in percentage points; `names` is by engine
    id.
    """
    ranked = sorted(
        figures.engines, key=lambda engine: (-abs(engine[1].shadow_requests - engine[1].live_requests), engine[0])
    )
    shown = sorted(ranked[:SHOWN_ENGINES], key=lambda item: names.get(item[0], item[0]))
    return [(names.get(engine_id, engine_id), share, _change(share, figures)) for engine_id, share in shown]


def _change(share: ShadowEngineShare, figures: ShadowFigures) -> str:
    points = (share.shadow_requests - share.live_requests) / figures.tally.compared * 100
    return f"{signed(points)}{NARROW_SPACE}pt"


def _bar(at: int, share: float, left: float, width: float) -> tuple[str, ...]:
    """Return kind, x position, top, width, and height of the bar for the disagreements in one range of gains."""
    kind = "better" if at > _MIDDLE else "worse" if at < _MIDDLE else "even"
    return kind, place(left + _GAP / 2), place(y(share)), place(width - _GAP), place(BOTTOM - y(share))


def _edges(reach: int, width: float) -> tuple[Tick, ...]:
    """Return labels for every second edge between bars, so that they fit."""
    ticks = [Tick(place(LEFT + (reach + 0.5) * width), "0")]
    for number in range(1, 2 * reach + 1):
        value = GAIN_EDGES_S[_MIDDLE - reach + number - 1]
        distance = abs(number - reach - 0.5)
        if int(distance) % 2 == 1:
            ticks.append(Tick(place(LEFT + number * width), setting(abs(value))))
    return tuple(ticks)


def _range_words(at: int) -> str:
    edges = GAIN_EDGES_S
    if at == _MIDDLE:
        return f"within {setting(edges[at])}"
    near, far = (edges[at - 1], edges[at] if at < len(edges) else None) if at > _MIDDLE else (
        edges[at], edges[at - 1] if at else None
    )  # fmt: skip
    side = "shorter" if at > _MIDDLE else "longer"
    if far is None:
        return f"more than {setting(abs(near))} {side}"
    return f"{setting(abs(near))} to {setting(abs(far))} {side}"
