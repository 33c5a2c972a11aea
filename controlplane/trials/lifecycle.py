"""Shared code of all kinds of trials: visibility, and the maximum number stored."""

from __future__ import annotations

from typing import TypeVar

from django.db.models import Model, Q, QuerySet

from controlplane.fleet.visibility import visible_pools
from controlplane.platform.actor import Actor
from controlplane.platform.role import Role
from controlplane.platform.roles import may

Trial = TypeVar("Trial", bound=Model)


def visible_trials(trials: QuerySet[Trial], actor: Actor, pools: str = "pool") -> QuerySet[Trial]:
    """Return the trials with a pool that the actor may see."""
    return trials if may(actor, Role.VIEWER) else trials.filter(**{f"{pools}__in": visible_pools(actor)})


def forget_ended(model: type[Model], unfinished: Q, at_most: int) -> int:
    """Delete the oldest trials beyond `at_most`, but never an unfinished one. Return how many."""
    rows = model._default_manager
    kept = list(rows.order_by("-pk").values_list("pk", flat=True)[:at_most])
    if len(kept) < at_most:
        return 0
    deleted = rows.filter(pk__lt=kept[-1]).exclude(unfinished).delete()[1]
    # By model: the total includes the rows to which the deletion cascades.
    return deleted.get(model._meta.label, 0)
