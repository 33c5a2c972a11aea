"""Recorded decisions as table rows, and as bars over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db.models import Count, F, QuerySet
from django.db.models.functions import Cast

from controlplane.fleet.models.engine import Engine
from controlplane.platform.format import UNKNOWN, clock_time, day, day_time, duration, whole, zone_name
from controlplane.platform.format import count as count_words
from controlplane.platform.format import span as span_words
from controlplane.request_log.decision_search import (
    FAILED,
    LATE,
    ON_TIME,
    REJECTED,
    RUNNING,
    STATES,
    narrowed,
    represented,
)
from controlplane.request_log.decision_story.advice import CAUSE_WORDS
from controlplane.request_log.decision_story.before_words import failure_title
from controlplane.request_log.decision_story.instead import WORTH_REPORTING_S
from controlplane.request_log.models.decision_index import DecisionIndex
from gateway.pools.engines.hit_words import CAUSE_TITLES
from routing.trials.arms import CANARY, CONTROL, LIVE
from web.live.engine_card import reason_title, rejection_word
from web.shell.chart import place

MISSED = (LATE, FAILED, REJECTED)
BARS = 150
MAX_SPAN_MS = 86_400_000
"""Maximum span of the strip in milliseconds: one day."""
RUNNING_MS = 60_000
"""Recent time span in milliseconds in which bars are too low: many requests still run, and only finished ones count."""
_FULL_REGRET_MS = 2000
"""Regret in milliseconds at which its bar is full."""
SHAPES = {
    ON_TIME: ("serving", "On time"),
    LATE: ("late", "Late"),
    FAILED: ("failed", "Failed"),
    REJECTED: ("rejected", "Rejected"),
    RUNNING: ("starting", "Running"),
}
"""Shape and word of each state, in display order."""
_OF_OUTCOME = {"completed": ON_TIME, "failed": FAILED, "rejected": REJECTED}
_UNJUDGED = {
    "cancelled": ("maintenance", "Client disconnected"),
    "client_error": ("maintenance", "Rejected by engine"),
    "unanswered": ("unknown", "No completion report"),
}
"""The same of outcomes that count neither for nor against the objective."""

ARM_WORDS = {LIVE: "live version", CANARY: "canary", CONTROL: "holdback"}


@dataclass(frozen=True, slots=True)
class Span:
    """A time span in Unix milliseconds, divided into bars."""

    begin_ms: int
    end_ms: int

    @property
    def bar_ms(self) -> int:
        """Length of one bar, in whole seconds."""
        return max(1000, -(-(self.end_ms - self.begin_ms) // BARS // 1000) * 1000)


def lines(rows: Sequence[DecisionIndex]) -> list[dict[str, Any]]:
    """Return rows with all columns of the table."""
    names = dict(
        Engine.objects.filter(engine_id__in={row.engine for row in rows if row.engine}).values_list("engine_id", "name")
    )
    return [_line(row, names.get(row.engine, row.engine)) for row in rows]


def _line(row: DecisionIndex, engine: str) -> dict[str, Any]:
    kind = state_of(row.outcome, row.late)
    shape, state = SHAPES[kind] if kind else _UNJUDGED.get(row.outcome, ("unknown", row.outcome))
    at = datetime.fromtimestamp(row.at_ms / 1000, UTC)
    # Nothing of these is known without an engine, and a failure does not judge the choice.
    regret_ms = row.regret_ms if row.engine and kind != FAILED else None
    if regret_ms is not None and regret_ms < 1000 * WORTH_REPORTING_S:
        regret_ms = 0
    reason = failure_title(row.error) if kind == FAILED else reason_title(row.reason)
    if kind == REJECTED:
        reason = f"Rejected, {rejection_word(row.reason)}"
    return {
        "row": row,
        "iso": at.isoformat(timespec="milliseconds"),
        "clock": clock_time(at, "milliseconds"),
        "shape": shape,
        "state": state,
        "reason": reason,
        "engine": engine,
        "prompt": whole(row.prompt_tokens) if row.prompt_tokens else UNKNOWN,
        "predicted": whole(row.predicted_tokens) if row.engine else UNKNOWN,
        "reported": UNKNOWN if row.reported_tokens is None else whole(row.reported_tokens),
        "mismatch": CAUSE_TITLES.get(row.mismatch, ""),
        "ttft": UNKNOWN if row.ttft_ms is None else duration(row.ttft_ms / 1000),
        "regret": UNKNOWN if regret_ms is None else duration(regret_ms / 1000) if regret_ms else "0",
        "regret_width": place(min(100.0, 100 * (regret_ms or 0) / _FULL_REGRET_MS), 1),
        "tried": ARM_WORDS[row.arm] if row.arm in (CANARY, CONTROL) else "",
        "regret_cause": CAUSE_WORDS.get(row.regret_cause, "") if regret_ms else "",
    }


def state_of(outcome: str, late: bool) -> str:
    """Return the state of an ended request; empty for one that counts neither for nor against the objective."""
    return LATE if late and outcome == "completed" else _OF_OUTCOME.get(outcome, "")


def strip(rows: QuerySet[DecisionIndex], span: Span, now_ms: int) -> dict[str, Any]:
    """Return decisions per second as bars in percent, with late, failed and rejected ones in their colors.

    Sampled decisions are weighted up.
    """
    grouped = (
        narrowed(rows, span.begin_ms, span.end_ms)
        .order_by()
        .annotate(
            bar=Cast((F("at_ms") - span.begin_ms) / span.bar_ms, output_field=DecisionIndex._meta.get_field("at_ms"))
        )
        .values("bar")
        .annotate(count=represented(), **{f"{state}_count": Count("pk", filter=STATES[state]) for state in MISSED})
    )
    bar_s = span.bar_ms / 1000
    counts = [
        (int(item["bar"]), item["count"] / bar_s, {state: item[f"{state}_count"] / bar_s for state in MISSED})
        for item in grouped
    ]
    most = max((count for _, count, _ in counts), default=0.0)
    missed = {state: round(sum(parts[state] for _, _, parts in counts) * bar_s) for state in MISSED}
    total = round(sum(count for _, count, _ in counts) * bar_s)
    wide = 100 * span.bar_ms / (span.end_ms - span.begin_ms)
    begin, end = _ends(span)
    return {
        "bars": [_strip_bar(span, item, most or 1.0, wide) for item in sorted(counts, key=lambda item: item[0])],
        "most": f"{most:.1f}" if most < 10 else f"{most:.0f}",
        "running": _percent_of_running(span, now_ms),
        "begin_ms": span.begin_ms,
        "end_ms": span.end_ms,
        "begin": begin,
        "end": end,
        "seconds": f"{bar_s:g}",
        "title": _finding(total, missed, span, now_ms),
    }


def _finding(total: int, missed: dict[str, int], span: Span, now_ms: int) -> str:
    """Return the page's title: "412 requests, 31 late, 4 failed in the last 15 min"."""
    live = abs(span.end_ms - now_ms) <= 2000
    length, (begin, end) = span_words((span.end_ms - span.begin_ms) / 1000), _ends(span)
    when = f"in the last {length}" if live else f"from {begin} to {end} {zone_name()}"
    if not total:
        return f"No requests {when}"
    parts = [(number, state) for state, number in missed.items() if number]
    if [number for number, _ in parts] == [total]:
        return f"{count_words(total, f'{parts[0][1]} request')} {when}"
    words = "".join(f", {number:,} {state}" for number, state in parts) or ", none late, failed or rejected"
    return f"{count_words(total, 'request')}{words} {when}"


def _ends(span: Span) -> tuple[str, str]:
    """Return begin and end of the span as times of day, with dates if they are on different days."""
    begin, end = span.begin_ms / 1000, span.end_ms / 1000
    if day(begin) == day(end):
        return clock_time(begin), clock_time(end)
    return day_time(begin, "seconds"), day_time(end, "seconds")


def _percent_of_running(span: Span, now_ms: int) -> str:
    """Return the start of the strip's part in which many requests still run, in percent; empty if there is none."""
    begin_ms = max(span.begin_ms, now_ms - RUNNING_MS)
    return place(100 * (begin_ms - span.begin_ms) / (span.end_ms - span.begin_ms)) if begin_ms < span.end_ms else ""


def _strip_bar(span: Span, counted: tuple[int, float, dict[str, float]], most: float, wide: float) -> dict[str, Any]:
    number, count, missed = counted
    high, parts, top = 100 * count / most, [], 100.0
    for state in MISSED:
        part = 100 * missed[state] / most
        top -= part
        if part:
            parts.append({"state": state, "y": place(max(0.0, top)), "height": place(part)})
    return {
        "x": place(number * wide, 3),
        "width": place(wide * 0.86, 3),
        "y": place(100 - high),
        "height": place(high),
        "parts": parts,
        "clock": clock_time((span.begin_ms + number * span.bar_ms) / 1000),
        "count": f"{count:.1f}",
        **{state: f"{missed[state]:.1f}" for state in MISSED},
    }
