"""What a pool was asked for in the past: the last minutes as heard, earlier ones as the plans recorded them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from controlplane.automation.models.plan_record import PlanRecord
from planning.documents.scaling_document import ScalingDocument
from planning.facts.fleet_facts import DemandPoint, PoolWindow

SCALING = "scaling"
_AROUND_S = 1800.0
MAX_POINTS = 500
"""Of the last time, and of the season before."""


def demand_history(
    pool_id: str, windows: Sequence[PoolWindow], now_s: float, settings: ScalingDocument
) -> list[DemandPoint]:
    """Return the demand of the last half hour and of the same time one season ago, oldest first."""
    heard = [DemandPoint(each.from_s + each.span_s, each.work_s / each.span_s) for each in windows]
    since_s = heard[0].at_s if heard else now_s
    then_s = now_s - settings.season_s
    return [
        *_recorded(pool_id, then_s - _AROUND_S, then_s + _AROUND_S + settings.warm_up_s),
        *_recorded(pool_id, max(now_s - _AROUND_S, then_s + _AROUND_S), since_s - 1.0),
        *heard,
    ]


def _recorded(pool_id: str, from_s: float, to_s: float) -> list[DemandPoint]:
    if to_s <= from_s:
        return []
    rows = PlanRecord.objects.filter(
        pool=pool_id,
        job=SCALING,
        at__range=(datetime.fromtimestamp(from_s, UTC), datetime.fromtimestamp(to_s, UTC)),
    ).order_by("at")
    return [
        DemandPoint(at.timestamp(), float(figures["demand"]))
        for at, figures in rows.values_list("at", "figures")[:MAX_POINTS]
        if isinstance(figures.get("demand"), int | float)
    ]
