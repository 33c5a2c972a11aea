"""Progress of the trials of a version, one function for each kind of trial."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Max, Q

from controlplane.platform.actor import Actor
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.trials_of_version import CANARY, SHADOW, WHAT_IF, Source, Trial
from controlplane.trials.canary.lifecycle import visible_canaries
from controlplane.trials.models.canary import CanaryState
from controlplane.trials.models.shadow import ShadowState
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
