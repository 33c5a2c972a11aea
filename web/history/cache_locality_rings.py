"""A pool's hash rings as a picture and a table: each engine's arcs, and what moves if an engine leaves."""

from __future__ import annotations

from typing import Any

from controlplane.history.cache_locality.intake import PoolCacheReport
from controlplane.history.cache_locality.rings import RingLine, rings_reading
from controlplane.platform.format import count, percent
from gateway.contracts.cache_locality_sample import PoolCacheLocality
from routing.rings.hash_ring import RING, HashRing
from routing.rings.ring_shares import RingShares
from web.history.cache_locality_prefixes import Link

TURN = 10_000
"""Length of a drawn ring; arc lengths are whole numbers."""
MAX_DRAWN = 32
"""Maximum number of engines for which all arcs are drawn; above it, only the selected engine's arcs are drawn."""
UNEVEN = 1.25
"""Multiple of the ideal share above which the title names an engine."""
_STEPS = 8
_RADII = (106, 84, 66, 50)
_NAMES = ("Outer ring", "Inner ring")


def rings_picture(report: PoolCacheReport, without: str, link: Link) -> dict[str, Any]:
    """Return the content of the panel; `without` is the id of an engine on the rings, or empty."""
    locality, reading = report.pool, rings_reading(report, without)
    shares, lines = reading.shares, reading.lines
    chosen = next((line.name for line in lines if line.engine_id == without), "")
    ideal = shares.ideal if shares is not None else 1 / max(1, len(locality.accepting))
    return {
        "rings": shares.rings if shares is not None else 0,
        "drawn": _drawn(locality, shares, without) if shares is not None else [],
        "ring_names": _NAMES[: shares.rings] if shares is not None and 1 < shares.rings <= len(_NAMES) else (),
        "rows": [_row(line, ideal, without, link) for line in lines],
        "ideal": ideal,
        # The value at the full width of a bar.
        "scale": 1.08
        * max([ideal, *(_reach(line) if shares is not None else line.dispatched or 0.0 for line in lines)]),
        "without": chosen,
        "clear": link(without=""),
        "moves": _moves(shares, chosen) if shares is not None and chosen else "",
        "sub": _sub(locality),
        "summary": _summary(lines, shares, chosen),
        "finding": _finding(lines, ideal) if shares is not None else "",
    }


def _reach(line: RingLine) -> float:
    placed = line.on_rings
    return placed.share + max(0.0, placed.gain or 0.0) if placed is not None else 0.0


def _row(line: RingLine, ideal: float, without: str, link: Link) -> dict[str, Any]:
    placed = line.on_rings
    chosen = bool(without) and line.engine_id == without
    return {
        "line": line,
        "placed": placed,
        "link": link(without="" if chosen else line.name) if placed is not None else "",
        "chosen": chosen,
        "step": _step(placed.share if placed is not None else 0.0, ideal),
        "gain": _points(placed.gain if placed is not None else None),
        "traffic_gain": _points(placed.traffic_gain if placed is not None else None),
    }


def _drawn(locality: PoolCacheLocality, shares: RingShares, without: str) -> list[tuple[int, list[dict[str, Any]]]]:
    """Return the radius of each drawn ring, and each engine's arcs on it as circle dashes."""
    if locality.rings is None:
        return []
    placed = {engine.engine_id: engine.share for engine in shares.engines}
    names = {engine.engine_id: engine.name for engine in locality.engines}
    drawn = []
    for radius, ring in zip(_RADII, locality.rings.over(locality.accepting), strict=False):
        arcs = [
            {
                "name": names.get(engine_id, engine_id),
                "step": _step(placed[engine_id], shares.ideal),
                "chosen": engine_id == without,
                "dashes": dashes,
            }
            for engine_id, dashes in zip(locality.accepting, _dashes(ring), strict=True)
            if len(locality.accepting) <= MAX_DRAWN or engine_id == without
        ]
        # The chosen one last, so that no other arc covers its ends.
        drawn.append((radius, sorted(arcs, key=lambda arc: arc["chosen"])))
    return drawn


def _dashes(ring: HashRing) -> list[str]:
    """Return each engine's arcs as dashes and gaps of a circle of length TURN."""
    spans: list[list[tuple[int, int]]] = [[] for _ in range(ring.size)]
    for begin, length, owner in ring.arcs():
        pieces = [(begin, begin + length)] if begin >= 0 else [(begin + RING, RING), (0, begin + length)]
        for first, last in pieces:
            low, high = first * TURN // RING, last * TURN // RING
            known = spans[owner]
            if known and known[-1][1] == low:
                known[-1] = (known[-1][0], high)
            elif high > low:
                known.append((low, high))
    return [_as_dashes(sorted(span)) for span in spans]


def _as_dashes(spans: list[tuple[int, int]]) -> str:
    numbers, at, dash = [], 0, 0
    for low, high in spans:
        numbers += [dash, low - at]
        at, dash = high, high - low
    numbers += [dash, TURN - at]
    return " ".join(str(number) for number in numbers)


def _step(share: float, ideal: float) -> int:
    """Return the step of the diverging scale, which ranges from 0.5 to 1.5 times the ideal share."""
    middle = _STEPS // 2
    return max(0, min(_STEPS, round(middle + (share / ideal - 1) * _STEPS))) if ideal else middle


def _points(gain: float | None) -> str:
    return "" if gain is None else f"{'−' if gain < -0.0005 else '+'}{abs(100 * gain):.1f}"


def _moves(shares: RingShares, name: str) -> str:
    if shares.moved is None:
        return f"{name} is the only engine; without it no request can be placed."
    words = (
        f"Without {name}, {percent(shares.moved)} of key positions move to other engines, ideally "
        f"{percent(shares.ideal)}; {percent(shares.keys_changed or 0.0)} of keys get another candidate; all "
        "others keep their engines."
    )
    if shares.traffic_moved is not None:
        words += f" Weighted by recent traffic, {percent(shares.traffic_moved)} of key positions move."
    return words


def _sub(locality: PoolCacheLocality) -> str:
    if locality.rings is None:
        return "shares of recent requests"
    plan = locality.rings
    key = f"keys of {count(plan.key_blocks, 'block')}" + (", longer where a prefix is hot" if plan.adaptive else "")
    points = f"{count(plan.virtual_nodes, 'point')} per engine"
    return f"{points}, {key}" + (
        f", {count(locality.widened, 'prefix', 'prefixes')} widened" if locality.widened else ""
    )


def _summary(lines: tuple[RingLine, ...], shares: RingShares | None, chosen: str) -> str:
    if shares is None:
        return ""
    biggest = max(shares.engines, key=lambda engine: engine.share, default=None)
    names = {line.engine_id: line.name for line in lines}
    most = (
        f"; {names.get(biggest.engine_id, biggest.engine_id)} has the most, {percent(biggest.share)}" if biggest else ""
    )
    gone = f". {chosen} is marked as removed" if chosen else ""
    rings = f"{count(shares.rings, 'hash ring')} of {count(len(shares.engines), 'engine')}"
    return f"{rings}{most}; ideal {percent(shares.ideal)}{gone}"


def _finding(lines: tuple[RingLine, ...], ideal: float) -> str:
    placed = [(line.on_rings.share, line.name) for line in lines if line.on_rings is not None]
    share, name = max(placed, default=(0.0, ""))
    if share > UNEVEN * ideal:
        return f"{name} is a candidate for {percent(share)} of keys, the ideal is {percent(ideal)}."
    return ""
