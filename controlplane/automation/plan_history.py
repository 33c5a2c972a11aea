"""Keeps the plans that are worth keeping: each that changes something, each new reason, and one a minute for charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from django.db.models import Q

from controlplane.automation.models.plan_record import PlanRecord
from planning.facts.reason import Reason

EVERY = timedelta(minutes=1)
KEPT = timedelta(days=30)
MAX_ROWS = 50_000
"""Of one pool and job; beyond it the oldest leave first."""


def worth_keeping(pool: str, job: str, at: datetime, *, changes: bool, mode: str, code: str) -> bool:
    """Return whether a plan is kept: it changes something, its first reason or mode is new, or a minute has gone by."""
    if changes:
        return True
    last = PlanRecord.objects.filter(pool=pool, job=job).order_by("-at", "-pk").first()
    if last is None or at - last.at >= EVERY or last.mode != mode:
        return True
    return not last.reasons or last.reasons[0]["code"] != code


def keep_plan(
    pool: str,
    job: str,
    at: datetime,
    *,
    mode: str,
    changes: bool,
    reasons: Sequence[Reason],
    figures: Mapping[str, Any],
    plan: Mapping[str, Any],
    outcome: Mapping[str, Any],
) -> PlanRecord | None:
    """Store the plan if it is worth keeping."""
    code = reasons[0].code if reasons else ""
    if not worth_keeping(pool, job, at, changes=changes, mode=mode, code=code):
        return None
    return PlanRecord.objects.create(
        pool=pool,
        job=job,
        at=at,
        mode=mode,
        changes=changes,
        summary=(reasons[0].text if reasons else "")[:300],
        reasons=msgspec.to_builtins(list(reasons)),
        figures=dict(figures),
        plan=dict(plan),
        outcome=dict(outcome),
    )


def forget_plans(now: datetime) -> int:
    """Delete what is older than KEPT or above MAX_ROWS, and return how many."""
    deleted = PlanRecord.objects.filter(at__lt=now - KEPT).delete()[0]
    for pool, job in PlanRecord.objects.order_by().values_list("pool", "job").distinct():
        rows = PlanRecord.objects.filter(pool=pool, job=job).order_by("-at", "-pk")
        surplus = rows[MAX_ROWS : MAX_ROWS + 1].first()
        if surplus is not None:
            older = Q(at__lt=surplus.at) | Q(at=surplus.at, pk__lte=surplus.pk)
            deleted += rows.filter(older).delete()[0]
    return deleted
