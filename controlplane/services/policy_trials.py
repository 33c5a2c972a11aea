"""The ways of trying a version out before it goes live, each with where its standings come from.

SOURCES is the one place where a way joins the journey of a version: its entry makes the step appear on the
policy page and in the API, between validated and approved, in the order of TRIALS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Max, Q

from controlplane.models import PolicyVersion
from controlplane.services.actor import Actor
from controlplane.services.whatifs import WhatIfStanding, standings_of, visible_whatifs
from controlplane.whatif.finding import headline

WHAT_IF, SHADOW, CANARY = "what_if", "shadow", "canary"
TRIALS = (WHAT_IF, SHADOW, CANARY)


@dataclass(frozen=True, slots=True)
class Trial:
    """How far one way of trying a version out has come: it goes on, or it has an answer."""

    running: bool
    at: datetime
    """When it began, or when it was answered."""
    by: str
    words: str
    """The finding in one line."""
    address: str = ""
    """The console's page about it."""


Source = Callable[[Actor, Sequence[PolicyVersion]], Mapping[int, Trial]]
"""Returns by version id the newest trial that the actor may see; a version without one is left out."""


def whatif_trials(actor: Actor, versions: Sequence[PolicyVersion]) -> dict[int, Trial]:
    """Return each version's newest what-if: one that goes on, else the newest with an answer."""
    of_versions = visible_whatifs(actor).filter(draft__in=versions).order_by()
    answered = Max("pk", filter=Q(result__isnull=False))
    ids = of_versions.values_list("draft_id").annotate(newest=Max("pk"), answered=answered)
    wanted = {pk for _, *both in ids for pk in both if pk is not None}
    if not wanted:
        return {}
    standings = standings_of(list(visible_whatifs(actor).filter(pk__in=wanted).order_by("pk")))
    found: dict[int, Trial] = {}
    for each in standings:
        trial = _trial_of(each)
        if trial is not None:
            found[each.whatif.draft_id] = trial
    return found


def _trial_of(standing: WhatIfStanding) -> Trial | None:
    whatif, result = standing.whatif, standing.result
    if result is None and not standing.unfinished:
        return None
    words = standing.state if result is None else f"{headline(result).title} than v{whatif.base.number}"
    by = whatif.author.get_username() if whatif.author else ""
    return Trial(result is None, whatif.created_at, by, words, f"/experiments/whatif/{whatif.pk}")


SOURCES: dict[str, Source] = {WHAT_IF: whatif_trials}
"""By a name of TRIALS; a way without a source does not appear in journeys."""
