"""Evaluate a canary: keep it, take the next step, promote it, or abort it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from planning.documents.guardrail_document import GuardrailDocument
from planning.facts.reason import Reason
from planning.trials.comparison import FAILED, LATE, TAIL, TTFT, ArmSlice, Comparison, GuardrailReading, compare
from routing.values.counted import count

Advance = Literal["by_hand", "steps", "promote"]
KEEP, STEP, PROMOTE, ABORT = "keep", "step", "promote", "abort"
NOTICEABLE = 0.01
"""Minimum difference from the plain ratio for a reason to mention that a ratio is adjusted for prompt length."""


class CanaryFacts(msgspec.Struct, frozen=True):
    """A running canary and its observations since its current step began, by pool. Slices are oldest first."""

    steps: tuple[float, ...]
    step: int
    """Index of the active share."""
    step_for_s: float
    min_dwell_s: float
    advance: Advance
    guardrails: GuardrailDocument
    whole: dict[str, tuple[ArmSlice, ...]]
    """Slices of the whole step."""
    recent: dict[str, tuple[ArmSlice, ...]]
    """Slices of the last `guardrails.window_s` of the step."""
    frozen: bool = False
    """Whether an operator froze a pool: the canary does not advance, but can still be aborted."""
    tried: str = "the canary"
    base: str = "the live version"
    """Names of the two sides."""


class CanaryPlan(msgspec.Struct, frozen=True):
    """The action to take, and the reasons."""

    action: str
    """keep, step, promote, or abort."""
    reasons: tuple[Reason, ...]
    comparison: Comparison
    """Comparison over all pools and the whole step."""


def plan_canary(facts: CanaryFacts) -> CanaryPlan:
    """Return the result of one evaluation."""
    together = compare([slice_ for slices in facts.whole.values() for slice_ in slices], facts.guardrails)
    reasons = _worse(facts)
    if reasons:
        return CanaryPlan(ABORT, tuple(reasons), together)
    waiting = _waits(facts, together)
    if waiting is not None:
        return CanaryPlan(KEEP, (waiting,), together)
    last = facts.step + 1 >= len(facts.steps)
    if last and facts.advance == "promote":
        words = f"{_percent(facts.steps[facts.step])} of sessions did well for {facts.step_for_s:.0f} s"
        return CanaryPlan(PROMOTE, (Reason("did_well", words),), together)
    if last:
        return CanaryPlan(
            KEEP,
            (Reason("last_step", "No guardrail looks broken at the last step. Promote or abort the canary."),),
            together,
        )
    after = _percent(facts.steps[facts.step + 1])
    words = f"{_percent(facts.steps[facts.step])} of sessions did well for {facts.step_for_s:.0f} s; {after} next"
    return CanaryPlan(STEP, (Reason("did_well", words),), together)


def _worse(facts: CanaryFacts) -> list[Reason]:
    """Return the thresholds crossed in any pool, over the whole step or recently."""
    reasons: dict[str, Reason] = {}
    # A regression that begins late shows in the recent stretch first.
    for stretch in (facts.whole, facts.recent):
        # Every pool by itself too, because one may suffer alone.
        scopes = dict(stretch) if len(stretch) > 1 else {}
        scopes[""] = tuple(slice_ for slices in stretch.values() for slice_ in slices)
        for pool in sorted(scopes):
            for reading in compare(scopes[pool], facts.guardrails).worse:
                where = f" in pool {pool}" if pool else ""
                words = guardrail_words(reading, facts.tried, facts.base) + where
                reasons.setdefault(reading.guard, Reason(f"worse_{reading.guard}", words))
    return list(reasons.values())


def _waits(facts: CanaryFacts, together: Comparison) -> Reason | None:
    """Return why the canary stays at its step although no threshold is crossed, or None."""
    if not together.enough:
        counts = (
            f"{count(together.tried_requests, 'request')} of {facts.tried}, {together.base_requests} of {facts.base}"
        )
        return Reason("too_few", f"Not enough requests: {counts}; each needs {facts.guardrails.min_requests}")
    suspects = [reading for reading in together.readings if reading.verdict == "suspect"]
    if suspects:
        return Reason("suspect", f"{guardrail_words(suspects[0], facts.tried, facts.base)}, but this may be chance")
    if facts.step_for_s < facts.min_dwell_s:
        left_s = facts.min_dwell_s - facts.step_for_s
        return Reason(
            "dwell",
            f"No guardrail looks broken; stays at {_percent(facts.steps[facts.step])} for another {left_s:.0f} s",
        )
    if facts.frozen:
        return Reason("frozen", "No guardrail looks broken; does not advance while one of its pools is frozen")
    if facts.advance == "by_hand":
        return Reason("by_hand", "No guardrail looks broken; a person starts the next step")
    return None


def guardrail_words(reading: GuardrailReading, tried: str = "the canary", base: str = "the live version") -> str:
    """Return a guardrail as a sentence with its figures."""
    if reading.base is None or reading.tried is None:
        return f"{reading.guard} is not known"
    if reading.guard == TTFT:
        times = f"{reading.tried:.3g} s in {tried}, {reading.base:.3g} s in {base}"
        ratio = reading.difference or 0.0
        alike = " for prompts of equal length" if abs(ratio * reading.base / reading.tried - 1) > NOTICEABLE else ""
        return f"Mean time to first token is {times}: {ratio:.2f} times{alike}, at most {reading.limit:.2f}"
    if reading.guard == TAIL:
        over = f"{_percent(reading.tried)} of {tried} is slower than {base}'s 90th percentile allows"
        return f"{over}: at most {_percent(reading.limit)}"
    what = {LATE: "late", FAILED: "failed"}[reading.guard]
    shares = f"{_percent(reading.tried)} of {tried} is {what}, {_percent(reading.base)} of {base}"
    return f"{shares}: at most {_percent(reading.limit)} more"


def recent_of(slices: Sequence[tuple[float, ArmSlice]], since_s: float) -> tuple[ArmSlice, ...]:
    """Return the slices that began at `since_s` or later, in order."""
    return tuple(slice_ for at, slice_ in slices if at >= since_s)


def _percent(share: float) -> str:
    return f"{share * 100:.3g} %"
