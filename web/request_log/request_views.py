"""Views of the matching requests besides the plain list: groups, sorted columns, and rolled-up equal rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from django.db.models import F, QuerySet

from controlplane.fleet.models.engine import Engine
from controlplane.platform.format import UNKNOWN, clock_time, count, duration, percent, whole
from controlplane.request_log.decision_search import FAILED, LATE, REJECTED, narrowed
from controlplane.request_log.decision_story.advice import CAUSE_WORDS
from controlplane.request_log.models.decision_index import DecisionIndex
from web.live.engine_card import reason_title
from web.request_log.decision_rows import Span, state_of
from web.shell.console_request import with_query

ADDRESS = "/requests"
GROUPS = {
    "tenant": "Tenant",
    "engine": "Engine",
    "reason": "Reason",
    "cause": "Regret cause",
    "prompt": "Prompt length",
}
"""Fields by which requests are grouped."""
LENGTHS = (0, 1_000, 4_000, 16_000, 64_000)
"""Lower limits of the groups by prompt length, in tokens."""
MAX_GROUPED = 20_000
"""Maximum number of stored rows that a grouping reads, newest first."""
MAX_GROUPS = 100
SORTS = {"ttft": "ttft_ms", "regret": "regret_ms", "prompt": "prompt_tokens"}
"""Columns by which the list is sorted besides time, and their fields."""
LEAST_EQUAL = 4
"""Number of equal rows in sequence from which they share one line."""
MAX_ROLLED = 300
"""Maximum number of rows that one page rolls up."""
_ALIKE = ("pool", "tenant", "engine", "reason")
_GROUP_HEADS = (
    ("requests", "Requests"),
    ("share", "Share"),
    (LATE, "Late"),
    (FAILED, "Failed"),
    (REJECTED, "Rejected"),
    ("p50", "TTFT p50"),
    ("p90", "TTFT p90"),
)
_LIST_HEADS = (
    ("", "Time", ""),
    (None, "State", ""),
    (None, "Reason", ""),
    (None, "Engine", ""),
    (None, "Tenant", ""),
    ("prompt", "Prompt, tok", "number"),
    (None, "Hit predicted → reported", "number"),
    ("ttft", "TTFT", "number"),
    ("regret", "Regret", ""),
    (None, "Policy", "number"),
)


@dataclass(slots=True)
class _Group:
    """Counts of one group, in requests; sampled rows count for those that they represent."""

    counts: dict[str, float] = field(default_factory=dict)
    ttft: list[tuple[int, float]] = field(default_factory=list)
    """Time to first token in milliseconds, and weight."""

    @property
    def requests(self) -> float:
        """Return the number of requests."""
        return sum(self.counts.values())

    def ttft_ms(self, share: float) -> int | None:
        """Return the weighted quantile of the time to first token; None if no request of the group has one."""
        rest = share * sum(weight for _, weight in self.ttft)
        for value, weight in sorted(self.ttft):
            rest -= weight
            if rest <= 0:
                return value
        return None


def grouped(
    matches: QuerySet[DecisionIndex], span: Span, by: str, sort: str, given: Mapping[str, str]
) -> dict[str, Any]:
    """Return the table of the groups within the span, sorted by a column, and how many rows were read."""
    name = {"cause": "regret_cause", "prompt": "prompt_tokens"}.get(by, by)
    fields = (name, "outcome", "late", "share", "ttft_ms")
    rows = list(narrowed(matches, span.begin_ms, span.end_ms).values_list(*fields)[: MAX_GROUPED + 1])
    groups: dict[Any, _Group] = {}
    for key, outcome, late, share, ttft_ms in rows[:MAX_GROUPED]:
        group = groups.setdefault(_length_of(key) if by == "prompt" else key, _Group())
        state = state_of(outcome, late)
        group.counts[state] = group.counts.get(state, 0.0) + 1 / share
        if ttft_ms is not None:
            group.ttft.append((ttft_ms, 1 / share))
    total = sum(group.requests for group in groups.values())
    names = _engine_names(groups) if by == "engine" else {}
    lines = [_group_line(by, key, group, total, names, given) for key, group in groups.items()]
    sort = sort if sort in dict(_GROUP_HEADS) else "requests"
    lines.sort(key=lambda line: (-(line["values"][sort] or 0), line["name"]))
    shown = {**given, "group": by}
    heads = [(title, with_query(ADDRESS, **shown, sort=key), key == sort) for key, title in _GROUP_HEADS]
    return {
        "title": GROUPS[by],
        "heads": heads,
        "rows": lines[:MAX_GROUPS],
        "more": max(0, len(lines) - MAX_GROUPS),
        "cut": len(rows) > MAX_GROUPED,
        "limit": whole(MAX_GROUPED),
        "span": f"{clock_time(span.begin_ms / 1000)} to {clock_time(span.end_ms / 1000)}",
    }


def _group_line(
    by: str, key: Any, group: _Group, total: float, names: Mapping[str, str], given: Mapping[str, str]
) -> dict[str, Any]:
    p50, p90 = group.ttft_ms(0.5), group.ttft_ms(0.9)
    missed = {state: group.counts.get(state, 0.0) for state in (LATE, FAILED, REJECTED)}
    values = {"requests": group.requests, "share": group.requests, **missed, "p50": p50, "p90": p90}
    only = _condition(by, key)
    of_state = {**given, **only, "late": ""}
    times = [UNKNOWN if value is None else duration(value / 1000) for value in (p50, p90)]
    return {
        "name": _group_name(by, key, names),
        "values": values,
        # A group without a value, such as requests without an engine, cannot be written as a condition.
        "address": with_query(ADDRESS, **{**given, **only}) if only else "",
        "cells": [
            (whole(group.requests), ""),
            (percent(group.requests / total), ""),
            *(
                (whole(number), with_query(ADDRESS, **{**of_state, "state": state}) if number and only else "")
                for state, number in missed.items()
            ),
            *((text, "") for text in times),
        ],
    }  # fmt: skip


def _condition(by: str, key: Any) -> dict[str, str]:
    if by != "prompt":
        return {by: key} if key else {}
    above = next((limit for limit in LENGTHS if limit > key), None)
    return {"prompt_from": str(key), "prompt_below": "" if above is None else str(above)}


def _group_name(by: str, key: Any, names: Mapping[str, str]) -> str:
    if by == "prompt":
        above = next((limit for limit in LENGTHS if limit > key), None)
        return f"from {count(key, 'token')}" if above is None else f"{whole(key)} to {count(above - 1, 'token')}"
    if by == "reason":
        return reason_title(key)
    if by == "cause":
        return CAUSE_WORDS.get(key, key) or "none"
    return names.get(key, key) or "no engine"


def _engine_names(ids: Iterable[str]) -> dict[str, str]:
    return dict(Engine.objects.filter(engine_id__in=list(ids)).values_list("engine_id", "name"))


def _length_of(tokens: int) -> int:
    return max(limit for limit in LENGTHS if limit <= max(0, tokens))


def list_heads(sort: str, given: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the heads of the list's columns; those that sort have an address."""
    return [
        {
            "title": title,
            "style": style,
            "address": "" if key is None else with_query(ADDRESS, **given, sort=key),
            "sorted": key == sort,
        }
        for key, title, style in _LIST_HEADS
    ]


def most(matches: QuerySet[DecisionIndex], span: Span, sort: str, limit: int) -> list[DecisionIndex]:
    """Return the rows within the span with the highest values of a column in SORTS."""
    highest = F(SORTS[sort]).desc(nulls_last=True)
    return list(narrowed(matches, span.begin_ms, span.end_ms).order_by(highest, "-at_ms", "-pk")[:limit])


def rolled_up(
    rows: Sequence[DecisionIndex],
    lines: Callable[[Sequence[DecisionIndex]], list[dict[str, Any]]],
    given: Mapping[str, str],
) -> list[dict[str, Any]]:
    """Return the table lines of rows, with one line for each run of equal failed or rejected ones."""
    every = iter(lines(rows))
    shown: list[dict[str, Any]] = []
    for alike, run in groupby(rows, key=_alike):
        equal = list(run)
        single = [next(every) for _ in equal]
        if alike is None or len(equal) < LEAST_EQUAL:
            shown += single
            continue
        newest, oldest = equal[0], equal[-1]
        conditions = {name: value for name in _ALIKE if (value := getattr(newest, name))}
        state = state_of(newest.outcome, newest.late)
        times = {"since": f"{oldest.at_ms / 1000:.3f}", "until": f"{newest.at_ms / 1000 + 0.001:.3f}"}
        within = {**given, **conditions, "late": "", "state": state, **times, "each": "1"}
        first = {"times": len(equal), "from": clock_time(oldest.at_ms / 1000), "all": with_query(ADDRESS, **within)}
        shown.append({**single[0], **first})
    return shown


def _alike(row: DecisionIndex) -> tuple[str, ...] | None:
    """Return what rows that share a line have in common; None for a row of its own."""
    state = state_of(row.outcome, row.late)
    return (state, row.error, *(getattr(row, name) for name in _ALIKE)) if state in (FAILED, REJECTED) else None
