"""Scaling: observe the load, plan how many engines a pool needs, and start or stop the difference."""

from __future__ import annotations

import time
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
from celery import shared_task
from django.db import transaction

from controlplane.automation.actuators.registry import actuator_of
from controlplane.automation.observation import FleetObservation, fleet_observation
from controlplane.automation.plan_actions import request_scaling
from controlplane.automation.plan_history import planned
from controlplane.automation.pool_facts import demand_history, pool_facts, role_loads, sleeping_engines
from controlplane.automation.pool_policy import OVERRIDE, mode_in_force, override_engines, pool_policy
from controlplane.automation.rounds import Round, RoundResult, make_due, run_rounds
from controlplane.platform.actor import program
from controlplane.platform.bus import get_bus
from gateway.bus.bus import Bus
from gateway.bus.bus_metrics import PLANS, WantedEngines, encode_wanted
from planning.documents.automation_mode import ACT, OFF
from planning.facts.fleet_facts import OUT
from planning.prefill_decode.imbalance import imbalance_of
from planning.scaling.scaling import plan_scaling
from planning.scaling.scaling_plan import ScalingMemory, ScalingPlan
from routing.values.prepared_struct import prepared

JOB = "scaling"
EVERY = timedelta(seconds=5)
ACTOR = program("scaling")


@shared_task(name="controlplane.scaling", ignore_result=True)
def scaling() -> None:
    """Run every few seconds, and when a request waits for a first engine: one round of each pool that is due."""
    observed = fleet_observation()
    if unserved := observed.unserved(time.time()):
        make_due(unserved.keys(), [JOB])
    run_rounds(JOB, EVERY, partial(scale, observed=observed, bus=get_bus()))


def scale(turn: Round, *, observed: FleetObservation, bus: Bus) -> RoundResult:
    """Return the result of one round for one pool. An override applies in every mode, unless the pool is frozen."""
    policy = pool_policy(turn.pool)
    settings = policy.automation.scaling
    override = override_engines(turn.pool, turn.at)
    mode = mode_in_force(turn.pool, OVERRIDE if override is not None else settings.mode)
    if mode == OFF:
        return RoundResult(turn.memory, outcome={"mode": mode})
    rings, nodes = policy.rings
    facts = pool_facts(turn.pool, policy.routing, observed, turn.now_s)
    history = demand_history(turn.pool.slug, facts.windows, turn.now_s, settings) if settings.forecast else []
    ratio = policy.automation.ratio
    loads = role_loads(facts, observed, ratio.window_s)
    seen = imbalance_of(loads, turn.now_s, ratio.window_s, ratio.min_samples) if loads else None
    if actuator_of(turn.pool).keeps_engines:
        # It wakes only engines that are registered; a start beyond them would fail.
        able = sum(engine.lifecycle != OUT for engine in facts.engines) + sleeping_engines(turn.pool)
        settings = msgspec.structs.replace(settings, max_engines=max(1, min(settings.max_engines, able)))
    memory = msgspec.convert(turn.memory, prepared(ScalingMemory))
    plan, after = plan_scaling(
        facts,
        history,
        memory,
        settings,
        override=override,
        imbalance=None if seen is None else seen.factor,
        rings=rings,
        virtual_nodes=nodes,
    )
    acts = mode in (ACT, OVERRIDE)
    # A plan that is not carried out must not start the pauses after a change.
    kept = (
        after
        if acts or plan.action == "none"
        else msgspec.structs.replace(after, added_s=memory.added_s, drained_s=memory.drained_s)
    )
    changes = plan.action != "none"
    result = planned(
        turn,
        JOB,
        plan,
        kept,
        mode=mode,
        changes=changes,
        carried_out=acts and changes,
        inputs={"engines": len(facts.engines), "windows": len(facts.windows), "history": len(history)},
        figures=_figures(plan),
        outcome={"action": plan.action if acts else "none"},
    )
    # In every mode: with `advise`, an autoscaler outside the program can follow the plan.
    result.effects.append(partial(_publish_later, bus, plan))
    if acts:
        why = plan.reasons[0].text
        effect = partial(request_scaling, turn.pool, plan.add, plan.drain, actor=ACTOR, why=why, at=turn.at)
        result.effects.append(effect)
    return result


def _publish_later(bus: Bus, plan: ScalingPlan) -> None:
    """Publish the wanted number of engines after the round is committed, for the gateways' metrics."""
    wanted = WantedEngines(pool_id=plan.pool_id, at=plan.at_s, engines=plan.target)
    transaction.on_commit(lambda: bus.publish(PLANS + plan.pool_id, encode_wanted(wanted)))


def _figures(plan: ScalingPlan) -> dict[str, Any]:
    forecast = plan.forecast
    return {
        "engines": plan.engines,
        "target": plan.target,
        "attainment": plan.attainment,
        "demand": plan.demand,
        "demand_ahead": forecast.ahead if forecast is not None else None,
        "queued_s": plan.queued_s,
        "remap_share": plan.remap.share if plan.remap is not None else None,
        "engine_h_today": plan.engine_h_today,
    }
