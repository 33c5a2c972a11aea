"""How a canary reads: its state, its figures, its guards, and what its page may offer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from controlplane.canaries.look import CanaryLook, read_look
from controlplane.canaries.pool_arms import slice_document
from controlplane.models import Canary, ControlSlice
from controlplane.models.canary import CanaryState
from controlplane.models.control_slice import SliceState
from controlplane.services.canary_evidence import GUARD_TITLES, Standing
from planning.documents.guardrail_document import GuardDocument
from planning.trials.arm_comparison import TAIL, TTFT, GuardReading
from planning.trials.guardrail_certainty import BROKEN, HOLDS, NOT_YET, GuardCertainty
from web.live.wording import NARROW_SPACE, count, duration, sentence
from web.moments import Moment, moment
from web.pages.canary_interval import Interval, interval
from web.pages.canary_pictures import share_words

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
    version = f"v{canary.version.number}"
    if canary.running:
        return f"{version} places {percent_words(canary.share)} of the sessions"
    return {
        CanaryState.PROMOTED: f"{version} was promoted",
        CanaryState.ABORTED: f"{version} was aborted",
        CanaryState.ENDED: f"The canary of {version} ended",
    }[CanaryState(canary.state)]


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
        late=f"{share_words(look.base.late_share)} / {share_words(look.tried.late_share)}" if look else "—",
        p90=f"{_seconds(look.base.p90_s)} / {_seconds(look.tried.p90_s)}" if look else "—",
    )


def figure_lines(look: CanaryLook) -> list[FigureLine]:
    """Return the figures of both arms."""
    base, tried = look.base, look.tried
    return [
        FigureLine("Requests judged", f"{base.requests:,}", f"{tried.requests:,}"),
        FigureLine("Late", share_words(base.late_share), share_words(tried.late_share)),
        FigureLine("Failed", share_words(base.failed_share), share_words(tried.failed_share)),
        FigureLine("TTFT p50, at most", _seconds(base.p50_s), _seconds(tried.p50_s)),
        FigureLine("TTFT p90, at most", _seconds(base.p90_s), _seconds(tried.p90_s)),
        FigureLine("TTFT p99, at most", _seconds(base.p99_s), _seconds(tried.p99_s)),
        FigureLine("Cache hits", share_words(base.hit_share), share_words(tried.hit_share)),
    ]


def guard_lines(look: CanaryLook, guards: GuardDocument, known: Sequence[GuardCertainty]) -> list[GuardLine]:
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
    waits = [each.wait_s for each in found.guards if each.verdict != HOLDS]
    known = [each for each in waits if each is not None]
    return f"in about {_roughly(max(known))}" if known and len(known) == len(waits) else "without evidence"


def percent_words(share: float) -> str:
    """Return a share of sessions as people say it: 5 %, 12.5 %."""
    return f"{share * 100:.3g}{NARROW_SPACE}%"


def _guard(reading: GuardReading, label: str, known: GuardCertainty) -> GuardLine:
    shape, verdict = _VERDICTS[known.verdict]
    if reading.guard == TTFT:
        base, tried = _seconds(reading.base), _seconds(reading.tried)
        limit = f"at most {reading.limit:.2f}{NARROW_SPACE}×"
    else:
        base, tried = share_words(reading.base), share_words(reading.tried)
        points = f"{reading.limit * 100:.3g}"
        limit = f"at most {points}{NARROW_SPACE}%" if reading.guard == TAIL else f"at most +{points} points"
    return GuardLine(
        label, base, tried, _difference(reading, reading.difference),
        f"{_difference(reading, reading.lower)} to {_difference(reading, reading.upper)}"
        if reading.lower is not None else "",
        limit, interval(reading), "hot" if known.beyond else shape, verdict, _note(known),
    )  # fmt: skip


def _note(known: GuardCertainty) -> str:
    """Return what it takes until a guard is known to hold."""
    if known.verdict != NOT_YET:
        return ""
    if known.beyond:
        return "past the threshold; more requests will not show that it holds"
    return "no estimate yet" if known.wait_s is None else f"needs about {_roughly(known.wait_s)} more"


def _roughly(wait_s: float) -> str:
    """Return an estimated wait in one unit."""
    for unit, of_s, most in (("s", 1.0, 90), ("min", 60.0, 90), ("h", 3600.0, 48)):
        if wait_s / of_s < most:
            return f"{math.ceil(wait_s / of_s - 1e-6)}{NARROW_SPACE}{unit}"
    return count(math.ceil(wait_s / 86_400), "day")


def _difference(reading: GuardReading, value: float | None) -> str:
    if value is None:
        return "—"
    if reading.guard == TTFT:
        return f"{value:.2f}{NARROW_SPACE}×"
    return f"{min(1.0, max(0.0, value)) * 100:.1f}{NARROW_SPACE}%" if reading.guard == TAIL else _signed_points(value)


def _signed_points(value: float) -> str:
    """Return a difference of shares in points, with its sign; what rounds to nothing has none."""
    points = round(value * 100, 1)
    sign = "+" if points > 0 else "−" if points < 0 else ""
    return f"{sign}{abs(points):.1f}"


def _seconds(value: float | None) -> str:
    return "—" if value is None else duration(value)
