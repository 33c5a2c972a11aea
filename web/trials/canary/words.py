"""Canaries in words: state, figures, guardrails, and the available actions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from controlplane.platform.format import (
    NARROW_SPACE,
    UNKNOWN,
    brief_percent,
    duration,
    moment,
    percent,
    roughly,
    signed,
)
from controlplane.trials.canary.evaluation import CanaryEvaluation, stored_evaluation
from controlplane.trials.canary.evidence import GUARD_TITLES
from controlplane.trials.canary.pool_arms import slice_document
from controlplane.trials.models.canary import Canary, CanaryState
from controlplane.trials.models.holdback import Holdback, SliceState
from planning.documents.guardrail_document import GuardrailDocument
from planning.trials.comparison import TAIL, TTFT, GuardrailReading
from planning.trials.guardrail_certainty import BROKEN, HOLDS, NOT_YET, GuardrailCertainty
from web.shell.chart import place

_MARGIN = 0.06
"""Share of the bar that stays empty at each end."""


def interval(reading: GuardrailReading) -> dict[str, str] | None:
    """Return positions on the bar, in percent from its left end; None if the difference is unknown.

    `none` is the position at which both arms are equal; empty if the guardrail has none.
    """
    if reading.difference is None or reading.lower is None or reading.upper is None:
        return None
    scale = math.log if reading.guard == TTFT else float
    # A share of requests is between zero and one.
    lowest = 0.0 if reading.guard == TAIL else -math.inf
    lower, upper = scale(max(reading.lower, lowest)), scale(reading.upper)
    difference, limit = scale(reading.difference), scale(reading.limit)
    none = None if reading.guard == TAIL else 0.0
    start, end = min(lower, limit, none or 0.0), max(upper, limit)
    span = max(end - start, 1e-9)

    def at(value: float) -> float:
        return (_MARGIN + (value - start) / span * (1 - 2 * _MARGIN)) * 100

    values = {"lower": lower, "difference": difference, "upper": upper, "limit": limit}
    marks = {name: place(at(value), 1) for name, value in values.items()}
    return {**marks, "width": place(at(upper) - at(lower), 1), "none": "" if none is None else place(at(none), 1)}


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


def candidate(canary: Canary) -> str:
    """Return the name of the candidate."""
    return f"v{canary.version.number}" if canary.pool is None else f"pool {canary.pool}"


def baseline(canary: Canary) -> str:
    """Return the name of the baseline."""
    return f"v{canary.against.number}" if canary.pool is None else "other pools"


def sides(canary: Canary) -> tuple[str, str]:
    """Return the column headings of both sides, the baseline first."""
    if canary.pool is None:
        return f"Live, v{canary.against.number}", f"Canary, v{canary.version.number}"
    return "Other pools", f"Canary, {canary.pool}"


def step_marks(canary: Canary) -> list[tuple[str, str]]:
    """Return the steps (shares, then promotion), each marked as done, now, last (the canary ended here), or ahead."""
    promoted = canary.state == CanaryState.PROMOTED
    marks = []
    for number, share in enumerate(canary.steps):
        reached = "now" if canary.running else "last"
        state = "done" if promoted or number < canary.step else reached if number == canary.step else "ahead"
        marks.append((brief_percent(share), state))
    return [*marks, ("Promoted", "done" if promoted else "ahead")]


def holdback_row(stored: Holdback, now: datetime) -> dict[str, Any]:
    """Return the row of one holdback, with the figures of the simple rule, then those of the policy."""
    return {
        "slice": stored,
        "shape": {SliceState.FALLBACK: "lost", SliceState.PROBING: "hot"}.get(SliceState(stored.state), "serving"),
        "rule": slice_document(stored.pool.policy.live_version).placement,
        "share": brief_percent(stored.share),
        "since": moment(stored.since, now),
        "evaluation": stored_evaluation(stored.evaluation),
    }


def guard_lines(
    evaluation: CanaryEvaluation, guardrails: GuardrailDocument, known: Sequence[GuardrailCertainty]
) -> list[dict[str, Any]]:
    """Return the guardrails with their thresholds and their certainty."""
    titles = {**GUARD_TITLES, TAIL: f"Over {guardrails.tail_ratio:g} × live p90"}
    return [
        _guard(reading, titles[reading.guard], certainty)
        for reading, certainty in zip(evaluation.readings, known, strict=True)
    ]


def _guard(reading: GuardrailReading, label: str, known: GuardrailCertainty) -> dict[str, Any]:
    """Return one guardrail: the observed value, the difference with its uncertainty, and the threshold."""
    shape, verdict = _VERDICTS[known.verdict]
    if reading.guard == TTFT:
        base, tried = duration(reading.base), duration(reading.tried)
        limit = f"at most {reading.limit:.2f}{NARROW_SPACE}×"
    else:
        base, tried = percent(reading.base), percent(reading.tried)
        points = f"{reading.limit * 100:.3g}"
        limit = f"at most {points}{NARROW_SPACE}%" if reading.guard == TAIL else f"at most +{points} points"
    doubt = f"{_difference(reading, reading.lower)} to {_difference(reading, reading.upper)}"
    return {
        "label": label,
        "base": base,
        "tried": tried,
        "difference": _difference(reading, reading.difference),
        "bounds": doubt if reading.lower is not None else "",
        "limit": limit,
        "interval": interval(reading),
        "shape": "hot" if known.beyond else shape,
        "verdict": verdict,
        "note": _note(known),
    }


def _note(known: GuardrailCertainty) -> str:
    """Return why a guardrail has no verdict yet; empty once it has one."""
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
    # A share of requests is between zero and one.
    return percent(min(1.0, max(0.0, value))) if reading.guard == TAIL else signed(value * 100)
