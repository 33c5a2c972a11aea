"""The release timeline of a version on the policy page: the steps of a draft, and the events of a published version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from django.urls import reverse

from controlplane.platform.format import Moment, moment_of
from controlplane.policies.reading import PolicyAccess
from controlplane.policies.release_timeline import (
    APPROVED,
    DONE,
    DRAFTED,
    LIVE,
    NEXT,
    NOW,
    REPLACED,
    ROLLED_BACK,
    SCHEDULED,
    SKIPPED,
    VALIDATED,
    TimelineStep,
)
from controlplane.policies.trials_of_version import CANARY, SHADOW, TRIALS, WHAT_IF

TITLES = {
    DRAFTED: "Drafted",
    VALIDATED: "Validated",
    WHAT_IF: "What-if",
    SHADOW: "Shadow",
    CANARY: "Canary",
    APPROVED: "Approved",
    SCHEDULED: "Scheduled",
    LIVE: "Live",
    REPLACED: "Replaced",
    ROLLED_BACK: "Rolled back",
}


STARTS = {
    WHAT_IF: ("whatif-link", "Run a what-if", "Run recorded traffic through this draft", "trials"),
    SHADOW: ("shadow-link", "Start a shadow", "Compare this draft's choices with the live policy's", "shadows"),
    CANARY: ("canary-link", "Start a canary", "Let this draft place a share of sessions", "canaries"),
}
"""The start link of each kind of trial: id, words, hint, and URL name."""
AGAIN = "Run again"
"""Label of the link if this trial was run before."""


@dataclass(frozen=True, slots=True)
class Start:
    """The link that starts one kind of trial."""

    link_id: str
    words: str
    hint: str
    href: str


@dataclass(frozen=True, slots=True)
class ShownStep:
    """One step; `href` leads to its result or its form, `action` is the label of the link."""

    step: str
    title: str
    state: str
    words: str
    at: Moment | None
    href: str = ""
    action: str = ""
    against: bool = False
    """Whether the result argues against the draft."""
    start: Start | None = None


def strip_of(
    release_timeline: Sequence[TimelineStep],
    state: PolicyAccess,
    number: int,
    now: datetime,
    *,
    canary_runs: bool = False,
) -> tuple[ShownStep, ...]:
    """Return the steps of a draft between validated and live; steps that are not required are omitted."""
    shown = []
    for step in release_timeline:
        optional = step.step in (APPROVED, SCHEDULED) and step.state == SKIPPED and not step.words.startswith("went")
        if step.step not in (*TRIALS, APPROVED, SCHEDULED) or (optional and not step.at):
            continue
        if step.step in STARTS:
            shown.append(_trial(step, state, number, now, canary_runs))
        elif step.state == NEXT and step.step == APPROVED and state.may_publish:
            href = f"{reverse('policy', args=[state.policy.slug])}?draft={number}&ask=publish"
            shown.append(_shown(replace(step, words=""), now, href, step.words))
        else:
            shown.append(_shown(step, now, step.address, ""))
    return tuple(shown)


def _trial(step: TimelineStep, state: PolicyAccess, number: int, now: datetime, canary_runs: bool) -> ShownStep:
    """Return one kind of trial as a step, with its start link if it can be started now."""
    shown = _shown(step, now, step.address, "")
    possible = {
        WHAT_IF: True,
        SHADOW: step.state != NOW,
        CANARY: state.may_publish and state.live is not None and not canary_runs,
    }
    if not (possible[step.step] and state.operated):
        return shown
    link_id, words, hint, name = STARTS[step.step]
    by_pool = f"pool={state.operated[0].slug}&draft={number}"
    about = f"policy={state.policy.slug}&version={number}" if step.step == CANARY else by_pool
    start = Start(link_id, words if step.at is None else AGAIN, hint, f"{reverse(name)}?new&{about}")
    return replace(shown, words="" if step.state == NEXT else shown.words, start=start)


def line_of(release_timeline: Sequence[TimelineStep], now: datetime) -> tuple[ShownStep, ...]:
    """Return the events of a version in order, for one line of text."""
    return tuple(_shown(step, now, step.address, "") for step in release_timeline if step.state not in (SKIPPED, NEXT))


def _shown(step: TimelineStep, now: datetime, href: str, action: str) -> ShownStep:
    at = moment_of(step.at, now) if step.at is not None else None
    title, words = TITLES[step.step], step.words
    if step.by_rollback:
        title, words = words.capitalize(), ""
    if step.step in (APPROVED, SCHEDULED) and step.by:
        words = f"by {step.by}" + (f", {words}" if words else "")
    elif step.step in (DRAFTED, LIVE, REPLACED, ROLLED_BACK) and step.by:
        words = f"{words} by {step.by}".strip()
    state = DONE if step.step == LIVE and step.state == DONE else step.state
    return ShownStep(step.step, title, state, words, at, href, action, step.against)
