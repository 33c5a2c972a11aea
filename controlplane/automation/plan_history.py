"""Stores plans that change something or have a new reason, and one plan a minute for charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

import msgspec
from django.db.models import Q

from controlplane.automation.models.plan_record import PlanRecord
from controlplane.automation.rounds import Round, RoundResult
from planning.facts.reason import Reason

EVERY = timedelta(minutes=1)
KEPT = timedelta(days=30)
MAX_ROWS = 50_000
"""Maximum number of plans per pool and job; the oldest are deleted."""


def worth_keeping(pool: str, job: str, at: datetime, *, changes: bool, mode: str, code: str) -> bool:
    """Return whether to store a plan: it changes something, its first reason or mode is new, or a minute has passed."""
    if changes:
        return True
    last = PlanRecord.objects.filter(pool=pool, job=job).order_by("-at", "-pk").first()
    if last is None or at - last.at >= EVERY or last.mode != mode:
        return True
    return not last.reasons or last.reasons[0]["code"] != code


class Plan(Protocol):
    """The result of a planner."""

    @property
    def reasons(self) -> Sequence[Reason]:
        """Return the reasons, the deciding one first."""
        ...


def planned(
    turn: Round,
    job: str,
    plan: Plan,
    memory: msgspec.Struct,
    *,
    mode: str,
    changes: bool,
    carried_out: bool,
    inputs: Mapping[str, Any],
    figures: Mapping[str, Any],
    outcome: Mapping[str, Any],
    stored: Mapping[str, Any] | None = None,
) -> RoundResult:
    """Return the result of a round with a plan. Its effects store the plan if it is worth keeping.

    `stored` is the part of the plan to store; None: all of it.
    """
    fields: Mapping[str, Any] = msgspec.to_builtins(plan) if stored is None else stored
    first = plan.reasons[0] if plan.reasons else Reason("", "")
    result = RoundResult(
        msgspec.to_builtins(memory), inputs=inputs, plan=fields, outcome={"mode": mode, **outcome, "reason": first.text}
    )
    if worth_keeping(turn.pool.slug, job, turn.at, changes=changes, mode=mode, code=first.code):
        record = PlanRecord(
            pool=turn.pool.slug,
            job=job,
            at=turn.at,
            mode=mode,
            changes=changes,
            summary=first.text[:300],
            reasons=msgspec.to_builtins(list(plan.reasons)),
            figures=dict(figures),
            plan=dict(fields),
            outcome={"carried_out": carried_out},
        )
        result.effects.append(record.save)
    return result


def forget_plans(now: datetime) -> int:
    """Delete plans that are older than KEPT or exceed MAX_ROWS. Return how many."""
    deleted = PlanRecord.objects.filter(at__lt=now - KEPT).delete()[0]
    # order_by() drops the model's ordering, whose columns would be part of DISTINCT.
    for pool, job in PlanRecord.objects.order_by().values_list("pool", "job").distinct():
        rows = PlanRecord.objects.filter(pool=pool, job=job).order_by("-at", "-pk")
        surplus = rows[MAX_ROWS : MAX_ROWS + 1].first()
        if surplus is not None:
            older = Q(at__lt=surplus.at) | Q(at=surplus.at, pk__lte=surplus.pk)
            deleted += rows.filter(older).delete()[0]
    return deleted
