"""The release timeline of a version on the policy page: the steps of a draft, and the events of a published version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from django.urls import reverse

from controlplane.platform.format import Moment, moment_of
from controlplane.policies.reading import PolicyAccess
from controlplane.policies.release_timeline import APPROVED, NEXT, NOW, SCHEDULED, SKIPPED, TimelineStep
from controlplane.policies.trials_of_version import CANARY, SHADOW, TRIALS, WHAT_IF

_FORMS = {WHAT_IF: "trials", SHADOW: "shadows", CANARY: "canaries"}
"""URL name of the page that starts each kind of trial."""


@dataclass(frozen=True, slots=True)
class ShownStep:
    """One step; `href` leads to its result or its form."""

    step: TimelineStep
    at: Moment | None
    href: str = ""
    start: str = ""
    """URL that starts the trial; empty if it cannot be started now."""


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
        one = _shown(step, now)
        if step.step in _FORMS:
            one = replace(one, start=_start(step, state, number, canary_runs=canary_runs))
        elif step.state == NEXT and state.may_publish:
            one = replace(one, href=f"{reverse('policy', args=[state.policy.slug])}?draft={number}&ask=publish")
        shown.append(one)
    return tuple(shown)


def _start(step: TimelineStep, state: PolicyAccess, number: int, *, canary_runs: bool) -> str:
    possible = {
        WHAT_IF: True,
        SHADOW: step.state != NOW,
        CANARY: state.may_publish and state.live is not None and not canary_runs,
    }
    if not (possible[step.step] and state.operated):
        return ""
    by_pool = f"pool={state.operated[0].slug}&draft={number}"
    about = f"policy={state.policy.slug}&version={number}" if step.step == CANARY else by_pool
    return f"{reverse(_FORMS[step.step])}?new&{about}"


def line_of(release_timeline: Sequence[TimelineStep], now: datetime) -> tuple[ShownStep, ...]:
    """Return the events of a version in order, for one line of text."""
    return tuple(_shown(step, now) for step in release_timeline if step.state not in (SKIPPED, NEXT))


def _shown(step: TimelineStep, now: datetime) -> ShownStep:
    return ShownStep(step, moment_of(step.at, now) if step.at is not None else None, step.address)
