"""The flow diagram: arrivals on the left, serving on the right, one row per region; width is the rate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from controlplane.platform.format import percent
from web.regions.region_rows import RegionRow

ROW, TOP = 118, 28
LEFT, RIGHT, BAR = 170, 440, 8
_THICKEST = 78.0
_THINNEST = 1.5


def flow(rows: Sequence[RegionRow]) -> dict[str, Any]:
    """Return the shapes to draw for these rows, in drawing order; each text follows its position."""
    most = max((max(row.arriving_per_s, row.served_per_s) for row in rows), default=0.0)
    scale = _THICKEST / most if most else 0.0
    middles = {row.name: TOP + at * ROW + ROW / 2 for at, row in enumerate(rows)}
    leaves = {row.name: middles[row.name] - row.arriving_per_s * scale / 2 for row in rows}
    lands = {row.name: middles[row.name] - row.served_per_s * scale / 2 for row in rows}
    staying = [row for row in rows if row.local_per_s]
    forwarded = [(row.name, region, rate) for row in rows for region, rate in row.forwarded_per_s.items()]
    bars = [
        (x, tops[row.name], max(1.0, per_s * scale))
        for row in rows
        for x, tops, per_s in ((LEFT, leaves, row.arriving_per_s), (RIGHT - BAR, lands, row.served_per_s))
    ]
    shares = [(LEFT + BAR + 12, leaves[row.name] + row.local_per_s * scale / 2 + 4, _local(row)) for row in staying]
    sentences = [f"{name} forwards {rate:.1f} requests per second to {region}" for name, region, rate in forwarded]
    notes = [(14, middles[row.name] + 16 * line, words) for row in rows for line, words in enumerate(_notes(row))]
    return {
        "height": TOP + ROW * len(rows),
        "bars": bars,
        "names": [(x, middles[row.name] - 18, row.name) for row in rows for x in (14, RIGHT + 14)],
        # The arrivals of each region, their destinations, and the requests that it serves.
        "notes": [*notes, *((RIGHT + 14, middles[row.name], f"{row.served_per_s:.1f}/s served") for row in rows)],
        "shares": shares,
        # Paths, and whether each crosses; drawing one advances the start of the next.
        "ribbons": [
            *(_ribbon(leaves, lands, row.name, row.name, row.local_per_s * scale) for row in staying),
            *(
                _ribbon(leaves, lands, name, region, max(_THINNEST, rate * scale))
                for name, region, rate in forwarded
                if region in lands
            ),
        ],
        "words": "; ".join(sentences) or "No region forwards requests",
    }


def _local(row: RegionRow) -> str:
    return f"{row.local_per_s:.1f}/s local, {percent(1 - row.forwarded_share)}"


def _notes(row: RegionRow) -> list[str]:
    before = ", before it went down"
    sent = [
        f"{rate:.1f}/s to {region}, {percent(rate / row.arriving_per_s)}{before * (region in row.down)}"
        for region, rate in sorted(row.forwarded_per_s.items(), key=lambda item: -item[1])
    ]
    return [f"{row.arriving_per_s:.1f}/s arrive", *sent[:3]]


def _ribbon(
    leaves: dict[str, float], lands: dict[str, float], origin: str, region: str, thick: float
) -> tuple[str, bool]:
    """Return one ribbon, and move the start of the next ribbon forward at both ends."""
    y0, y1 = leaves[origin], lands[region]
    leaves[origin], lands[region] = y0 + thick, y1 + thick
    x0, x1 = LEFT + BAR + 1, RIGHT - BAR - 1
    middle = (x0 + x1) / 2
    path = (
        f"M{x0} {y0:.1f}C{middle} {y0:.1f} {middle} {y1:.1f} {x1} {y1:.1f}v{thick:.1f}"
        f"C{middle} {y1 + thick:.1f} {middle} {y0 + thick:.1f} {x0} {y0 + thick:.1f}z"
    )
    return path, origin != region
