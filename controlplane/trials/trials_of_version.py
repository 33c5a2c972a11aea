"""Trials of versions: their progress, those that run now, and their end with a deleted draft."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Max, Q

from controlplane.platform.actor import Actor
from controlplane.platform.conflict import ConflictError
from controlplane.platform.format import brief_percent
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.trials_of_version import CANARY, SHADOW, WHAT_IF, Source, Trial
from controlplane.trials.canary.lifecycle import visible_canaries
from controlplane.trials.models.canary import Canary, CanaryState
from controlplane.trials.models.shadow import Shadow, ShadowState
from controlplane.trials.models.whatif import WhatIf
from controlplane.trials.shadow.lifecycle import visible_shadows
from controlplane.trials.shadow.reading import figures_of
from controlplane.trials.whatif.finding import WORSE, headline
from controlplane.trials.whatif.lifecycle import WhatIfStatus, statuses_of, visible_whatifs


def whatif_trials(actor: Actor, versions: Sequence[PolicyVersion]) -> dict[int, Trial]:
    """Return each version's newest unfinished what-if or, without one, the newest with a result."""
    of_versions = visible_whatifs(actor).filter(draft__in=versions).order_by()
    answered = Max("pk", filter=Q(result__isnull=False))
    ids = of_versions.values_list("draft_id").annotate(newest=Max("pk"), answered=answered)
    wanted = {pk for _, *both in ids for pk in both if pk is not None}
    if not wanted:
        return {}
    statuses = statuses_of(list(visible_whatifs(actor).filter(pk__in=wanted).order_by("pk")))
    by_draft: dict[int, Trial] = {}
    for status in statuses:
        trial = _trial_of(status)
        if trial is not None:
            by_draft[status.whatif.draft_id] = trial
    return by_draft


def _trial_of(status: WhatIfStatus) -> Trial | None:
    whatif, result = status.whatif, status.result
    if result is None and not status.unfinished:
        return None
    headline_ = None if result is None else headline(result)
    words = status.state if headline_ is None else f"{headline_.title} than {whatif.against}"
    against = headline_ is not None and headline_.kind == WORSE
    by = whatif.author.get_username() if whatif.author else ""
    return Trial(result is None, whatif.created_at, by, words, f"/trials/whatif/{whatif.pk}", against)


def shadow_trials(actor: Actor, versions: Sequence[PolicyVersion]) -> dict[int, Trial]:
    """Return each version's newest shadow."""
    by_draft: dict[int, Trial] = {}
    for shadow in visible_shadows(actor).filter(draft__in=versions).prefetch_related("parts").order_by("pk"):
        running, figures = shadow.state == ShadowState.RUNNING, figures_of(shadow)
        if figures.agreement is None:
            words = "nothing compared yet" if running else shadow.reason or "nothing compared"
        else:
            words = f"like v{shadow.base.number} in {figures.agreement:.0%} of {figures.tally.compared:,}"
        by = shadow.author.get_username() if shadow.author else ""
        by_draft[shadow.draft_id] = Trial(running, shadow.created_at, by, words, f"/trials/shadows/{shadow.pk}")
    return by_draft


def canary_trials(actor: Actor, versions: Sequence[PolicyVersion]) -> dict[int, Trial]:
    """Return each version's newest canary."""
    by_version: dict[int, Trial] = {}
    for canary in visible_canaries(actor).filter(version__in=versions, pool=None).order_by("pk"):
        words = f"{canary.share:.0%} of the sessions" if canary.running else canary.get_state_display().lower()
        address = f"/trials/canaries/{canary.key}"
        against = canary.state == CanaryState.ABORTED
        by_version[canary.version_id] = Trial(
            canary.running, canary.started_at, canary.author_name, words, address, against
        )
    return by_version


SOURCES: dict[str, Source] = {WHAT_IF: whatif_trials, SHADOW: shadow_trials, CANARY: canary_trials}


@dataclass(frozen=True, slots=True)
class RunningTrial:
    """A canary or shadow that runs now."""

    policy_id: int
    pool: str
    """Slug of the only pool on trial; empty: all pools of the policy."""
    words: str
    """What is on trial, on which traffic."""
    step: str
    """Its step of how many; empty for a shadow."""
    address: str
    """Console page about the trial."""


def running_trials(actor: Actor) -> list[RunningTrial]:
    """Return the running canaries and shadows that the actor may see, canaries first."""
    canaries = visible_canaries(actor).filter(state=CanaryState.RUNNING).order_by("policy__slug")
    shadows = visible_shadows(actor).filter(state=ShadowState.RUNNING).order_by("pool__slug")
    return [*map(_of_canary, canaries), *map(_of_shadow, shadows)]


def _of_canary(canary: Canary) -> RunningTrial:
    pool = canary.pool.slug if canary.pool else ""
    words = f"{pool or f'v{canary.version.number}'} on {brief_percent(canary.share)} of sessions"
    step = f"step {canary.step + 1} of {len(canary.steps)}"
    return RunningTrial(canary.policy_id, pool, words, step, f"/trials/canaries/{canary.key}")


def _of_shadow(shadow: Shadow) -> RunningTrial:
    words = f"v{shadow.draft.number} in shadow, beside v{shadow.base.number}"
    return RunningTrial(shadow.draft.policy_id, shadow.pool.slug, words, "", f"/trials/shadows/{shadow.pk}")


def delete_trials(*, version: PolicyVersion, **_announced: Any) -> None:
    """Delete the ended what-ifs and shadows of a draft that is about to be deleted.

    Raises ConflictError if one still runs, if it was a canary, or if another version's trial compared with it.
    """
    name = f"v{version.number}"
    if Canary.objects.filter(Q(version=version) | Q(against=version)).exists():
        raise ConflictError(f"{name} served requests in a canary and stays, because decisions refer to it.")
    of_draft = Q(draft=version)
    if Shadow.objects.filter(of_draft, state=ShadowState.RUNNING).exists():
        raise ConflictError(f"{name} is on trial in a shadow. Stop the shadow first.")
    whatifs = statuses_of(list(WhatIf.objects.filter(of_draft).select_related("draft", "base")))
    if any(status.unfinished for status in whatifs):
        raise ConflictError(f"A what-if of {name} is running. Cancel it first.")
    if WhatIf.objects.filter(base=version).exclude(of_draft).exists():
        raise ConflictError(f"A what-if compares another version with {name}; {name} stays.")
    Shadow.objects.filter(of_draft).delete()
    WhatIf.objects.filter(of_draft).delete()
