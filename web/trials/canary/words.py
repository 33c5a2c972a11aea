"""How a canary reads: its state, its figures, its guards, and what its page may offer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from controlplane.platform.format import (
    NARROW_SPACE,
    UNKNOWN,
    Moment,
    count,
    duration,
    moment,
    percent,
    roughly,
    sentence,
    signed,
)
from controlplane.trials.canary.evaluation import CanaryEvaluation, read_look
from controlplane.trials.canary.evidence import GUARD_TITLES, Standing
from controlplane.trials.canary.pool_arms import slice_document
from controlplane.trials.models.canary import Canary, CanaryState
from controlplane.trials.models.control_slice import ControlSlice, SliceState
from planning.documents.guardrail_document import GuardDocument
from planning.trials.arm_comparison import TAIL, TTFT, GuardrailReading
from planning.trials.guardrail_certainty import BROKEN, HOLDS, NOT_YET, GuardrailCertainty
from web.trials.canary.interval import Interval, interval

STATES = {
    CanaryState.RUNNING: ("serving", "running"),
    CanaryState.PROMOTED: ("serving", "promoted"),
    CanaryState.ABORTED: ("lost", "aborted"),
    CanaryState.ENDED: ("maintenance", "ended"),
}
"""Shape and word of each state."""
_VERDICTS = {
    HOLDS: ("serving", "holds"),
    BROKEN: ("lost", "broken"),
    NOT_YET: ("maintenance", "not yet known"),
}


@dataclass(frozen=True, slots=True)
class FigureLine:
    """One figure of both arms."""

    label: str
    base: str
    tried: str


@dataclass(frozen=True, slots=True)
class GuardLine:
    """One guard: what was observed, the difference with its doubt, and the threshold."""

    label: str
    base: str
    tried: str
    difference: str
    bounds: str
    limit: str
    interval: Interval | None
    shape: str
    verdict: str
    note: str
    """Of what is not yet known: what it takes to know it."""


@dataclass(frozen=True, slots=True)
class StepMark:
    """One step of the course."""

    words: str
    state: str
    """done, now or ahead."""


def title(canary: Canary) -> str:
    """Return the page's title."""
    name = candidate(canary)
    if canary.running:
        words = f"{name} serves {percent_words(canary.share)} of sessions"
    else:
        words = {
            CanaryState.PROMOTED: f"{name} was promoted",
            CanaryState.ABORTED: f"{name} was aborted",
            CanaryState.ENDED: f"The canary of {name} ended",
        }[CanaryState(canary.state)]
    return words if canary.pool is None else sentence(words).rstrip(".")


def candidate(canary: Canary) -> str:
    """Return the name of what is on trial."""
    return f"v{canary.version.number}" if canary.pool is None else f"pool {canary.pool}"


def baseline(canary: Canary) -> str:
    """Return the name of what it is compared with."""
    return f"v{canary.against.number}" if canary.pool is None else "other pools"


def promotion(canary: Canary) -> str:
    """Return what promoting it does."""
    if canary.pool is None:
        return f"publish v{canary.version.number} for all sessions"
    return f"keep {percent_words(canary.share)} of sessions in pool {canary.pool}"


def sides(canary: Canary) -> tuple[str, str]:
    """Return the headings of both sides, the baseline first."""
    if canary.pool is None:
        return f"Live, v{canary.against.number}", f"Canary, v{canary.version.number}"
    return "Other pools", f"Canary, {canary.pool}"


def step_marks(canary: Canary) -> list[StepMark]:
    """Return the course: its shares, and promoting at the end."""
    promoted = canary.state == CanaryState.PROMOTED
    marks = []
    for number, share in enumerate(canary.steps):
        reached = "now" if canary.running else "last"
        state = "done" if promoted or number < canary.step else reached if number == canary.step else "ahead"
        marks.append(StepMark(percent_words(share), state))
    return [*marks, StepMark("Promoted", "done" if promoted else "ahead")]


@dataclass(frozen=True, slots=True)
class SliceRow:
    """One control slice in the list."""

    pool: str
    shape: str
    state: str
    rule: str
    share: str
    since: Moment | None
    reason: str
    late: str
    p90: str


def slice_row(stored: ControlSlice, now: datetime) -> SliceRow:
    """Return how one control slice reads; figures are those of the rule, then of the policy."""
    look = read_look(stored.look)
    shape = {SliceState.FALLBACK: "lost", SliceState.PROBING: "hot"}.get(SliceState(stored.state), "serving")
    return SliceRow(
        pool=stored.pool.slug,
        shape=shape,
        state=stored.get_state_display(),
        rule=slice_document(stored.pool.policy.live_version).placement,
        share=percent_words(stored.share),
        since=moment(stored.since, now),
        reason=sentence(stored.reason),
        late=f"{percent(look.base.late_share)} / {percent(look.tried.late_share)}" if look else UNKNOWN,
        p90=f"{duration(look.base.p90_s)} / {duration(look.tried.p90_s)}" if look else UNKNOWN,
    )


def figure_lines(look: CanaryEvaluation) -> list[FigureLine]:
    """Return the figures of both arms."""
    base, tried = look.base, look.tried
    judged = base.requests + tried.requests
    return [
        FigureLine("Requests judged", f"{base.requests:,}", f"{tried.requests:,}"),
        FigureLine("Share of them", *(percent(each.requests / judged if judged else None) for each in (base, tried))),
        FigureLine("Late", percent(base.late_share), percent(tried.late_share)),
        FigureLine("Failed", percent(base.failed_share), percent(tried.failed_share)),
        FigureLine("TTFT p50, upper bound", duration(base.p50_s), duration(tried.p50_s)),
        FigureLine("TTFT p90, upper bound", duration(base.p90_s), duration(tried.p90_s)),
        FigureLine("TTFT p99, upper bound", duration(base.p99_s), duration(tried.p99_s)),
        FigureLine("Cache hits", percent(base.hit_share), percent(tried.hit_share)),
    ]


def guard_lines(look: CanaryEvaluation, guards: GuardDocument, known: Sequence[GuardrailCertainty]) -> list[GuardLine]:
    """Return the guards with their thresholds and what is known of them."""
    titles = {**GUARD_TITLES, TAIL: f"Over {guards.tail_ratio:g} × live p90"}
    return [_guard(each, titles[each.guard], found) for each, found in zip(look.readings, known, strict=True)]


def next_words(found: Standing) -> str:
    """Return when the evidence can be there, as the end of a button's label."""
    parts = [f"{math.ceil(found.dwell_s)}{NARROW_SPACE}s"] if found.dwell_s else []
    if found.requests:
        parts.append(count(found.requests, "request"))
    if parts:
        return f"in {', '.join(parts)}"
    return f"in about {roughly(found.wait_s)}" if found.wait_s else "without evidence"


def percent_words(share: float) -> str:
    """Return a share of sessions as people say it: 5 %, 12.5 %."""
    return f"{share * 100:.3g}{NARROW_SPACE}%"


def _guard(reading: GuardrailReading, label: str, known: GuardrailCertainty) -> GuardLine:
    shape, verdict = _VERDICTS[known.verdict]
    if reading.guard == TTFT:
        base, tried = duration(reading.base), duration(reading.tried)
        limit = f"at most {reading.limit:.2f}{NARROW_SPACE}×"
    else:
        base, tried = percent(reading.base), percent(reading.tried)
        points = f"{reading.limit * 100:.3g}"
        limit = f"at most {points}{NARROW_SPACE}%" if reading.guard == TAIL else f"at most +{points} points"
    return GuardLine(
        label, base, tried, _difference(reading, reading.difference),
        f"{_difference(reading, reading.lower)} to {_difference(reading, reading.upper)}"
        if reading.lower is not None else "",
        limit, interval(reading), "hot" if known.beyond else shape, verdict, _note(known),
    )  # fmt: skip


def _note(known: GuardrailCertainty) -> str:
    """Return what it takes until a guard is known to hold."""
    if known.verdict != NOT_YET:
        return ""
    if known.beyond:
        return "beyond the threshold; more requests are unlikely to change that"
    return "no estimate yet" if known.wait_s is None else f"needs about {roughly(known.wait_s)} more"


def _difference(reading: GuardrailReading, value: float | None) -> str:
    if value is None:
        return UNKNOWN
    if reading.guard == TTFT:
        return f"{value:.2f}{NARROW_SPACE}×"
    # A share of requests lies between nothing and all of them.
    return percent(min(1.0, max(0.0, value))) if reading.guard == TAIL else signed(value * 100)
