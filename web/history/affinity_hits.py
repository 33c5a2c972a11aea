"""Predicted against reported hits, per engine and request, with the trust that follows and its reason."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from controlplane.platform.format import count, percent, sentence, short, span
from gateway.contracts.affinity_sample import EngineAffinity, HitPoint, PoolAffinity
from gateway.engines.hit_words import CAUSE_TITLES
from web.shell.chart import place, x, y

MAX_TWIN = 60
_TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)
_TRUSTS = {"exact": "Exact", "degraded": "Degraded", "blind": "Blind"}


@dataclass(frozen=True, slots=True)
class Dot:
    """One request in the picture: where it stands, in percent."""

    x: str
    y: str
    differs: bool


@dataclass(frozen=True, slots=True)
class HitRow:
    """One engine, or the pool."""

    name: str
    trust: str
    trust_words: str
    compared: int
    differing: int
    predicted: str
    reported: str
    ratio: str
    bar: str
    cause: str
    why: str
    since: str
    link: str


@dataclass(frozen=True, slots=True)
class HitsPicture:
    """What the panels show."""

    pool: HitRow
    rows: tuple[HitRow, ...]
    dots: tuple[Dot, ...]
    begin: tuple[str, str]
    end: tuple[str, str]
    """Ends of the line on which reported equals predicted."""
    x_ticks: tuple[tuple[str, str], ...]
    y_ticks: tuple[tuple[str, str], ...]
    twin: tuple[tuple[str, ...], ...]
    """Newest first: engine, age, prompt, predicted, reported, difference."""
    summary: str
    finding: str


def hits_picture(told: PoolAffinity, now: float) -> HitsPicture:
    """Return the pictures; `now` is unix seconds."""
    points = [(engine, point) for engine in told.engines for point in engine.points]
    top = max([told.block_tokens, *(max(point.believed_tokens, point.reported_tokens) for _, point in points)])
    points.sort(key=lambda each: (each[1].age_s, each[0].name))
    differing = sum(point.differs for _, point in points)
    return HitsPicture(
        pool=_pool_row(told),
        rows=tuple(_row(told, engine, now) for engine in told.engines if engine.compared or engine.accepts),
        dots=tuple(
            Dot(place(x(_root(point.believed_tokens, top))), place(y(_root(point.reported_tokens, top))), point.differs)
            for _, point in sorted(points, key=lambda each: each[1].differs)
        ),
        begin=(place(x(0)), place(y(0))),
        end=(place(x(1)), place(y(1))),
        x_ticks=tuple((place(x(each)), short(round(each * each * top))) for each in _TICKS),
        y_ticks=tuple((place(y(each)), short(round(each * each * top))) for each in _TICKS),
        twin=tuple(_twin(engine, point) for engine, point in points[:MAX_TWIN]),
        summary=f"{count(len(points), 'request')}, predicted against reported cached tokens; {differing} differing",
        finding=_finding(told),
    )


def pool_hits(told: PoolAffinity) -> dict[str, Any]:
    """Return the pool's predicted and reported tokens, their ratio, and how many engines are trusted less."""
    believed = sum(each.believed_tokens for each in told.engines)
    reported = sum(each.reported_tokens for each in told.engines)
    return {
        "predicted": short(believed),
        "reported": short(reported),
        "ratio": f"{100 * reported / believed:.1f}" if believed else "—",
        "doubted": sum(each.trust not in ("exact", "") for each in told.engines),
        "causes": sorted({CAUSE_TITLES.get(each.cause, each.cause) for each in told.engines if each.cause}),
    }


def _pool_row(told: PoolAffinity) -> HitRow:
    everything = pool_hits(told)
    believed = sum(each.believed_tokens for each in told.engines)
    reported = sum(each.reported_tokens for each in told.engines)
    return HitRow(
        name="All engines",
        trust="",
        trust_words="",
        compared=sum(each.compared for each in told.engines),
        differing=sum(each.differing for each in told.engines),
        predicted=everything["predicted"],
        reported=everything["reported"],
        ratio=everything["ratio"],
        bar=_bar(reported, believed),
        cause="",
        why="",
        since="",
        link="",
    )


def _row(told: PoolAffinity, engine: EngineAffinity, now: float) -> HitRow:
    believed, reported = engine.believed_tokens, engine.reported_tokens
    query = {"pool": told.pool_id, "engine": engine.name}
    if engine.cause:
        query["mismatch"] = engine.cause
    return HitRow(
        name=engine.name,
        trust=engine.trust,
        trust_words=_TRUSTS.get(engine.trust, "Unknown"),
        compared=engine.compared,
        differing=engine.differing,
        predicted=short(believed),
        reported=short(reported),
        ratio=f"{100 * reported / believed:.1f}" if believed else "—",
        bar=_bar(reported, believed),
        cause=CAUSE_TITLES.get(engine.cause, engine.cause),
        why=sentence(engine.trust_reason),
        since=f"{span(now - engine.trust_since)} ago" if engine.trust_since is not None else "the gateway started",
        link=f"/decisions?{urlencode(query)}",
    )


def _twin(engine: EngineAffinity, point: HitPoint) -> tuple[str, ...]:
    difference = point.reported_tokens - point.believed_tokens
    sign = "−" if difference < 0 else "+" if difference else ""
    return (
        engine.name,
        f"{span(point.age_s)} ago",
        f"{point.prompt_tokens:,}",
        f"{point.believed_tokens:,}",
        f"{point.reported_tokens:,}",
        f"{sign}{abs(difference):,}",
    )


def _finding(told: PoolAffinity) -> str:
    """Return what the hits say against an index; an index from our own dispatches is degraded by nature."""
    doubted = [each for each in told.engines if each.cause and each.trust != "exact"]
    if not doubted:
        return ""
    worst = min(doubted, key=lambda each: (each.share if each.share is not None else 1.0, each.name))
    cause = CAUSE_TITLES.get(worst.cause, worst.cause)
    found = f", {percent(worst.share)} of what was predicted" if worst.share is not None else ""
    return f"The index of {worst.name} is {worst.trust}{found}: {cause}."


def _bar(reported: int, believed: int) -> str:
    return place(100 * min(1.0, reported / believed if believed else 0.0), 1)


def _root(tokens: int, top: int) -> float:
    """Return the place on a square-root scale, on which short hits are seen beside long ones."""
    return math.sqrt(max(0, tokens) / top)
