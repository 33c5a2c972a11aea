"""Rebalancing: observe hotspots, plan wider prefixes and moves, and send the plan to the gateways."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
from celery import shared_task
from django.db import transaction

from controlplane.automation.observation import FleetObservation, fleet_observation
from controlplane.automation.plan_history import planned
from controlplane.automation.pool_facts import pool_facts
from controlplane.automation.pool_policy import mode_in_force, pool_policy
from controlplane.automation.rounds import Round, RoundResult, run_rounds
from controlplane.platform.bus import get_bus
from gateway.bus.bus import Bus
from gateway.contracts.rebalance_order import TOPIC_PREFIX, MoveOrder, RebalanceOrder, encode_order
from planning.documents.automation_mode import ACT, OFF
from planning.rebalance.rebalance import plan_rebalance
from planning.rebalance.rebalance_plan import RebalanceMemory, RebalancePlan
from routing.values.prepared_struct import prepared

JOB = "rebalance"
EVERY = timedelta(seconds=1)
WINDOWS_S = 60.0
"""Time span in which recomputed prefixes are judged."""


@shared_task(name="controlplane.rebalance", ignore_result=True)
def rebalance() -> None:
    """Run every second: one round of each pool that is due."""
    run_rounds(JOB, EVERY, partial(even_out, observed=fleet_observation(), bus=get_bus()))


def even_out(turn: Round, *, observed: FleetObservation, bus: Bus) -> RoundResult:
    """Return the result of one round for one pool."""
    policy = pool_policy(turn.pool)
    settings = policy.automation.rebalance
    mode = mode_in_force(turn.pool, settings.mode)
    if mode == OFF:
        return RoundResult({}, outcome={"mode": mode})
    facts = pool_facts(turn.pool, policy.routing, observed, turn.now_s)
    recent = tuple(window for window in facts.windows if window.from_s >= turn.now_s - WINDOWS_S)
    usual_d, prefixes = observed.prefixes(turn.pool.slug, turn.now_s)
    memory = msgspec.convert(turn.memory, prepared(RebalanceMemory))
    facts = msgspec.structs.replace(facts, windows=recent)
    plan, after = plan_rebalance(facts, prefixes, memory, settings, usual_d=usual_d)
    # A prefix whose widening is only advised has not been widened.
    kept = after if mode == ACT else msgspec.structs.replace(after, widened={})
    result = planned(
        turn,
        JOB,
        plan,
        kept,
        mode=mode,
        changes=bool(plan.wider or plan.narrower or plan.moves),
        carried_out=mode == ACT,
        inputs={"engines": len(facts.engines), "prefixes": len(prefixes), "usual_d": usual_d},
        figures=_figures(plan),
        outcome={},
    )
    if mode == ACT:
        # In each round: gateways keep an order for half a minute, so that a frozen pool returns to its usual
        # candidates by itself.
        result.effects.append(partial(_publish_later, bus, _order(turn, plan)))
    return result


def _publish_later(bus: Bus, order: RebalanceOrder) -> None:
    """Publish the order after the round is committed, so that gateways receive only committed plans."""
    transaction.on_commit(lambda: bus.publish(TOPIC_PREFIX + order.pool_id, encode_order(order)))


def _order(turn: Round, plan: RebalancePlan) -> RebalanceOrder:
    return RebalanceOrder(
        pool_id=turn.pool.slug,
        at=turn.now_s,
        # Gateways drop the order of an older lease.
        fence=turn.lease.fencing_token,
        widened=plan.widened,
        moves=tuple(MoveOrder(move.engine_id, move.at_most) for move in plan.moves),
    )


def _figures(plan: RebalancePlan) -> dict[str, Any]:
    return {
        "load_cv": plan.load_cv,
        "hot": len(plan.hot),
        "widened": len(plan.widened),
        "moves": sum(move.at_most for move in plan.moves),
        "recomputed_share": plan.recomputed_share,
    }
