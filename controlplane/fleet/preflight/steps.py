"""Checklist of a preflight: its steps, their states, and their stored form in a job run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from routing.values.prepared_struct import prepared

PENDING, OK, FAILED, SKIPPED = "pending", "ok", "failed", "skipped"

NAMES = {
    "reachable": "Reachable",
    "healthy": "Healthy",
    "model": "Serves the pool's model",
    "context": "Context length",
    "block_size": "Block size",
    "events": "Event socket",
    "keys": "Same text, same blocks",
}
"""Steps in order. Each step requires the previous ones."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the checklist."""

    key: str
    """One of NAMES."""
    state: str = PENDING
    """pending, ok, failed, or skipped."""
    sentence: str = ""
    """The result; empty while pending."""
    remedy: str = ""
    """The fix for a failed step; for an ok step, a remark or empty."""

    @property
    def name(self) -> str:
        """Return the title of the step."""
        return NAMES.get(self.key, self.key)


def fresh_steps() -> tuple[Step, ...]:
    """Return the checklist with all steps pending."""
    return tuple(Step(key=key) for key in NAMES)


def replaced(steps: Sequence[Step], news: Step) -> tuple[Step, ...]:
    """Return the checklist with one step replaced. After a failure, the remaining steps are skipped."""
    checklist = tuple(news if step.key == news.key else step for step in steps)
    if news.state != FAILED:
        return checklist
    return tuple(msgspec.structs.replace(step, state=SKIPPED) if step.state == PENDING else step for step in checklist)


def failed_step(steps: Iterable[Step]) -> Step | None:
    """Return the failed step; None without one."""
    return next((step for step in steps if step.state == FAILED), None)


def to_progress(steps: Sequence[Step]) -> dict[str, Any]:
    """Return the progress in its stored form."""
    done = sum(1 for step in steps if step.state != PENDING)
    return {"done": done, "of": len(steps), "steps": msgspec.to_builtins(list(steps))}


def from_progress(progress: Any) -> tuple[Step, ...]:
    """Read stored progress. Unreadable progress becomes a new checklist."""
    stored = progress.get("steps") if isinstance(progress, dict) else None
    if not stored:
        return fresh_steps()
    try:
        return tuple(msgspec.convert(stored, prepared(list[Step])))
    except msgspec.ValidationError:
        return fresh_steps()
