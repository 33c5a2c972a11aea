"""Turns stored and observed data of a pool, including past demand, into facts for its planners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any

import msgspec

from controlplane.automation.models.engine_action import OPEN_STATES, ActionKind, ActionState, EngineAction
from controlplane.automation.models.engine_health import HealthState
from controlplane.automation.models.plan_record import PlanRecord
from controlplane.automation.observation import FleetObservation, Sighting
from controlplane.fleet.models.engine import DesiredState, Engine
from controlplane.fleet.models.pool import Pool
from controlplane.platform.jobs.lease import LONGEST
from gateway.contracts.engine_report import EngineReport
from gateway.contracts.fleet_sample import EngineCounts
from planning.documents.scaling_document import ScalingDocument
from planning.facts.fleet_facts import (
    ACTIVE,
    DRAINING,
    OUT,
    STARTING,
    DemandPoint,
    EngineObservation,
    Lifecycle,
    PoolFacts,
    PoolWindow,
    RoleLoad,
)
from routing.policy.policy_document import RoutingPolicy

MAX_STARTS = 12
"""Number of past starts considered. By then, the pause between failing starts has long reached its limit."""
_AROUND_S = 1800.0
"""Time span considered before now, and around the same time one season ago, for the demand history."""
MAX_POINTS = 500
"""Maximum number of points in the recent past, and in the past season."""
Seen = tuple[Sighting, EngineReport | None, float | None]


def pool_facts(pool: Pool, routing: RoutingPolicy, observed: FleetObservation, now_s: float) -> PoolFacts:
    """Return the facts of one pool at unix second `now_s`, using four queries."""
    engines = list(Engine.objects.filter(pool=pool).select_related("health").order_by("engine_id"))
    actions = list(EngineAction.objects.filter(pool=pool, state__in=OPEN_STATES).order_by("pk"))
    seen = observed.engines(pool.slug, now_s)
    by_engine = {action.engine_id: action for action in actions if action.engine_id is not None}
    facts = [_engine(engine, by_engine.get(engine.pk), seen, now_s) for engine in engines]
    coming = [action for action in actions if action.kind == ActionKind.START and action.engine_id is None]
    return PoolFacts(
        pool_id=pool.slug,
        now_s=now_s,
        ttft_slo_s=routing.ttft_slo_s,
        tpot_slo_s=routing.tpot_slo_s,
        engines=(*facts, *(_to_be(action) for action in coming)),
        windows=observed.windows(pool.slug, now_s),
        unserved=observed.unserved(now_s).get(pool.slug, 0),
        **_failed_starts(pool),
    )


def role_loads(facts: PoolFacts, observed: FleetObservation, window_s: float) -> list[RoleLoad]:
    """Return the loads of the pool's prefill and decode engines in the last `window_s` seconds (Mooncake §5.1)."""
    roles = {engine.engine_id: engine.role for engine in facts.engines if engine.role != "mixed"}
    loads = []
    for point in observed.loads(facts.now_s - window_s):
        role = roles.get(point.engine_id)
        if role == "prefill":
            # Prefilling counts in addition to the wait, which alone stays near zero until it is too late.
            busy = 1.0 if point.in_flight_s > 0 else 0.0
            loads.append(RoleLoad(point.at_s, role, busy + point.in_flight_s / facts.ttft_slo_s))
        elif role == "decode" and (point.tpot_s is not None or point.kv_usage is not None):
            tpot = (point.tpot_s or 0.0) / facts.tpot_slo_s
            loads.append(RoleLoad(point.at_s, role, max(tpot, point.kv_usage or 0.0)))
    return loads


def demand_history(
    pool_id: str, windows: Sequence[PoolWindow], now_s: float, settings: ScalingDocument
) -> list[DemandPoint]:
    """Return the demand of the last half hour and of the same time one season ago, oldest first."""
    live = [DemandPoint(window.from_s + window.span_s, window.work_s / window.span_s) for window in windows]
    since_s = live[0].at_s if live else now_s
    then_s = now_s - settings.season_s
    return [
        *_recorded(pool_id, then_s - _AROUND_S, then_s + _AROUND_S + settings.warm_up_s),
        *_recorded(pool_id, max(now_s - _AROUND_S, then_s + _AROUND_S), since_s - 1.0),
        *live,
    ]


def _recorded(pool_id: str, from_s: float, to_s: float) -> list[DemandPoint]:
    if to_s <= from_s:
        return []
    rows = PlanRecord.objects.filter(
        pool=pool_id,
        job="scaling",
        at__range=(datetime.fromtimestamp(from_s, UTC), datetime.fromtimestamp(to_s, UTC)),
    ).order_by("at")
    return [
        DemandPoint(at.timestamp(), float(figures["demand"]))
        for at, figures in rows.values_list("at", "figures")[:MAX_POINTS]
        if isinstance(figures.get("demand"), int | float)
    ]


def _engine(engine: Engine, action: EngineAction | None, seen: Mapping[str, Seen], now_s: float) -> EngineObservation:
    sighting, report, unreachable_since_s = seen.get(engine.engine_id, (Sighting(), None, None))
    counts = sighting.counts
    state = _state(engine, action)
    facts = EngineObservation(
        engine_id=engine.engine_id,
        incarnation=sighting.incarnation,
        # An engine that changes its role counts in the new one, or both automations would replace it.
        role=action.role if action is not None else engine.role,
        lifecycle=state,
        since_s=_since_s(engine, action, now_s),
        load_share=_share(engine),
        in_flight_s=sighting.in_flight_s,
        bound=sighting.bound,
        dispatched=sighting.running,
        **_reported(report, unreachable_since_s),
    )
    if counts is None:
        return facts
    return _with_counts(facts, counts)


def _since_s(engine: Engine, action: EngineAction | None, now_s: float) -> float:
    if action is not None:
        return _unix(action.requested_at)
    since_s = _unix(engine.registered_at)
    # Registered before the clock was set back, it is no newcomer until that time is reached again.
    return since_s if since_s <= now_s + LONGEST.total_seconds() else 0.0


def _with_counts(facts: EngineObservation, counts: EngineCounts) -> EngineObservation:
    fields = msgspec.structs.asdict(counts)
    fields["dispatched"] = max(facts.dispatched, fields["dispatched"])
    return msgspec.structs.replace(facts, **fields)


def _reported(report: EngineReport | None, unreachable_since_s: float | None) -> dict[str, Any]:
    if report is None:
        return {}
    return {
        "report_s": report.at,
        "reachable": report.reachable,
        "unreachable_since_s": unreachable_since_s,
        "readable": report.readable,
        "paused": "sleeping" if report.asleep else "",
        "running": report.running,
        "waiting": report.waiting,
        "kv_usage": report.kv_usage,
        "prompt_tokens_total": report.prompt_tokens_total,
        "generated_tokens_total": report.generated_tokens_total,
    }


def _state(engine: Engine, action: EngineAction | None) -> Lifecycle:
    if action is not None:
        return DRAINING if action.kind == ActionKind.STOP else STARTING
    if engine.desired_state == DesiredState.READY:
        return ACTIVE
    return DRAINING if engine.desired_state == DesiredState.DRAINING else OUT


def _failed_starts(pool: Pool) -> dict[str, Any]:
    """Return the facts about recent failed starts."""
    ended = EngineAction.objects.filter(
        pool=pool, kind=ActionKind.START, state__in=(ActionState.DONE, ActionState.FAILED)
    )
    last = list(ended.order_by("-finished_at", "-pk").values_list("state", "finished_at", "says")[:MAX_STARTS])
    failed = list(takewhile(lambda item: item[0] == ActionState.FAILED, last))
    if not failed:
        return {}
    _, finished_at, says = failed[0]
    return {"failed_starts": len(failed), "start_failed_s": _unix(finished_at), "start_failure": says}


def _to_be(action: EngineAction) -> EngineObservation:
    """Return the facts of an engine that an action starts and that is not registered yet."""
    return EngineObservation(
        engine_id=action.key,
        role=action.role,
        lifecycle=STARTING,
        since_s=_unix(action.requested_at),
    )


def _share(engine: Engine) -> float:
    health = getattr(engine, "health", None)
    return 0.0 if health is not None and health.state == HealthState.QUARANTINED else 1.0


def _unix(moment: datetime) -> float:
    return moment.timestamp()


def engines_by_id(pool: Pool, engine_ids: Sequence[str]) -> dict[str, Engine]:
    """Return the pool's engines with these ids, by id."""
    return {engine.engine_id: engine for engine in Engine.objects.filter(pool=pool, engine_id__in=engine_ids)}


def sleeping_engines(pool: Pool) -> int:
    """Return the number of the pool's engines that sleep."""
    return Engine.objects.filter(pool=pool, desired_state=DesiredState.ASLEEP).count()
