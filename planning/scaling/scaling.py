"""Decide how many engines a pool should have (DualMap §3.4, A.3.3).

Scaling adds several engines at once if objectives are widely missed, if the queue will be too long by the time a new
engine is ready, or if a forecast expects load. It drains one step at a time, and only after a calm period in which
fewer engines would have been enough with a reserve. Sizes follow from demand, which an overloaded pool cannot hide:
engines = demand / utilization.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from planning.documents.scaling_document import ScalingDocument
from planning.facts.fleet_facts import ACTIVE, DRAINING, STARTING, DemandPoint, EngineObservation, PoolFacts, Role
from planning.facts.forecast import expected_demand
from planning.facts.pool_load import load_of
from planning.facts.reason import Reason
from planning.prefill_decode.role_changes import role_to_drain, roles_to_add
from planning.scaling.remap import Remap, remap_of
from planning.scaling.scaling_bounds import bounded_change
from planning.scaling.scaling_evaluation import ScalingRound
from planning.scaling.scaling_need import wanted_engines
from planning.scaling.scaling_plan import ScalingMemory, ScalingPlan, engine_h_of_day, metered
from planning.scaling.start_pause import STARTS_FAIL


def plan_scaling(
    facts: PoolFacts,
    history: Sequence[DemandPoint],
    memory: ScalingMemory,
    settings: ScalingDocument,
    *,
    override: int | None = None,
    imbalance: float | None = None,
    rings: int = 0,
    virtual_nodes: int = 100,
) -> tuple[ScalingPlan, ScalingMemory]:
    """Return the plan of this round, and the memory for the next one.

    `history` is the past demand, including the last minutes. `override` is an operator's number of engines, limited to
    the pool's bounds. `imbalance` is the factor of planning.prefill_decode if the pool has roles. `rings` is the number
    of hash rings of the placement, 0 if it has none.
    """
    now_s = facts.now_s
    engines = sum(engine.lifecycle in (ACTIVE, STARTING, DRAINING) for engine in facts.engines)
    memory = metered(memory, engines, now_s)
    forecast = None
    if settings.forecast:
        forecast = expected_demand(
            history,
            now_s,
            # An engine that is ordered now serves after its warm-up.
            ahead_s=settings.warm_up_s + settings.window_s,
            recent_s=max(4 * settings.window_s, settings.down_cool_down_s),
            season_s=settings.season_s,
        )
    load = load_of(facts.windows, now_s, settings.window_s, settings.min_requests)
    evaluation = ScalingRound(
        facts=facts, settings=settings, memory=memory, load=load, forecast=forecast, imbalance=imbalance
    )
    wanted, reasons = wanted_engines(evaluation, override)
    memory = _remembered(evaluation, wanted)
    count, blocked = bounded_change(msgspec.structs.replace(evaluation, memory=memory), wanted, override is not None)
    failing = [item for item in blocked if item.code == STARTS_FAIL]
    held = [item for item in blocked if item.code != STARTS_FAIL]
    return _plan_and_memory(evaluation, memory, count, (*failing, *reasons, *held), rings, virtual_nodes)


def _remembered(evaluation: ScalingRound, wanted: int) -> ScalingMemory:
    """Return the memory with the start of the calm period, and with engine numbers that were too low."""
    memory, load = evaluation.memory, evaluation.load
    missed = load.attainment is not None and load.attainment < evaluation.settings.attainment
    # Only where all engines served was their number too small.
    if missed and wanted > evaluation.engines and len(evaluation.serving) == evaluation.engines:
        memory = msgspec.structs.replace(
            memory, too_few=evaluation.engines, too_few_demand=load.demand or 0.0, too_few_s=evaluation.now_s
        )
    if wanted >= evaluation.engines:
        return msgspec.structs.replace(memory, calm_since_s=None)
    since_s = memory.calm_since_s if memory.calm_since_s is not None else evaluation.now_s
    return msgspec.structs.replace(memory, calm_since_s=since_s)


def _plan_and_memory(
    evaluation: ScalingRound,
    memory: ScalingMemory,
    change: int,
    reasons: tuple[Reason, ...],
    rings: int,
    virtual_nodes: int,
) -> tuple[ScalingPlan, ScalingMemory]:
    add: tuple[Role, ...] = roles_to_add(max(change, 0), evaluation.facts.engines, evaluation.imbalance)
    drain = _to_drain(evaluation, max(-change, 0))
    if add:
        memory = msgspec.structs.replace(memory, added_s=evaluation.now_s, calm_since_s=None)
    elif drain:
        memory = msgspec.structs.replace(memory, drained_s=evaluation.now_s)
    plan = ScalingPlan(
        pool_id=evaluation.facts.pool_id,
        at_s=evaluation.now_s,
        action="add" if add else "drain" if drain else "none",
        engines=evaluation.engines,
        target=evaluation.engines + len(add) - len(drain),
        add=add,
        drain=drain,
        attainment=evaluation.load.attainment,
        demand=evaluation.load.demand,
        adds_above=evaluation.most,
        drains_below=evaluation.least,
        forecast=evaluation.forecast,
        queued_s=evaluation.load.queued_s,
        remap=_remap(evaluation, len(add), drain, rings, virtual_nodes) if rings and (add or drain) else None,
        engine_h_today=engine_h_of_day(memory, evaluation.now_s),
        reasons=reasons,
    )
    return plan, memory


def _to_drain(evaluation: ScalingRound, count: int) -> tuple[str, ...]:
    """Return the engines to drain: quarantined ones first, then those with the least work, then the youngest.

    An engine that does not answer is not among them: engine health replaces it.
    """
    chosen: list[EngineObservation] = []
    for _ in range(count):
        left = [item for item in evaluation.serving if item.reachable and item not in chosen]
        role = role_to_drain(left, evaluation.imbalance)
        among = [item for item in left if role is None or item.role == role]
        # The last engine is drained only where the minimum is 0.
        if not among or len(left) <= min(evaluation.floor, 1):
            break
        chosen.append(
            min(
                among,
                key=lambda item: (
                    item.load_share > 0,
                    # Rounded, so that among engines of about the same load age decides.
                    round(item.in_flight_s, 1),
                    -(item.since_s or 0.0),
                    item.engine_id,
                ),
            )
        )
    return tuple(item.engine_id for item in chosen)


def _remap(evaluation: ScalingRound, add: int, drain: Sequence[str], rings: int, virtual_nodes: int) -> Remap:
    """Return the remapping among the serving engines. New ones get provisional names for the estimate."""
    before = [engine.engine_id for engine in evaluation.facts.engines if engine.lifecycle in (ACTIVE, STARTING)]
    after = [item for item in before if item not in drain] + [f"+{number}" for number in range(add)]
    return remap_of(before, after, rings=rings, virtual_nodes=virtual_nodes)
