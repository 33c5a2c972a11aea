"""The prefill/decode ratio: observe both roles' loads, plan role changes, and start them (Mooncake §5.1)."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import msgspec
from celery import shared_task

from controlplane.automation.actuators.registry import actuator_of
from controlplane.automation.observation import FleetObservation, fleet_observation
from controlplane.automation.plan_actions import request_role_changes
from controlplane.automation.plan_history import planned
from controlplane.automation.pool_facts import pool_facts, role_loads
from controlplane.automation.pool_policy import OVERRIDE, mode_in_force, override_prefill, pool_policy
from controlplane.automation.rounds import Round, RoundResult, run_rounds
from controlplane.platform.actor import program
from planning.documents.automation_mode import ACT, OFF
from planning.prefill_decode.prefill_decode import plan_ratio
from planning.prefill_decode.ratio_plan import RatioMemory
from planning.scaling.start_pause import why_no_start
from routing.values.prepared_struct import prepared

JOB = "prefill_decode"
EVERY = timedelta(seconds=5)
ACTOR = program("prefill/decode ratio")
_FIGURES = (
    "imbalance", "prefill_load", "decode_load", "prefill", "decode", "target_prefill", "target_decode",
)  # fmt: skip


@shared_task(name="controlplane.prefill_decode", ignore_result=True)
def prefill_decode() -> None:
    """Run every few seconds: one round of each pool that is due."""
    run_rounds(JOB, EVERY, partial(balance, observed=fleet_observation()))


def balance(turn: Round, *, observed: FleetObservation) -> RoundResult:
    """Return the result of one round for one pool; a pool without roles is unchanged."""
    policy = pool_policy(turn.pool)
    settings = policy.automation.ratio
    wished = override_prefill(turn.pool, turn.at)
    mode = mode_in_force(turn.pool, OVERRIDE if wished is not None else settings.mode)
    facts = pool_facts(turn.pool, policy.routing, observed, turn.now_s)
    if mode == OFF or all(engine.role == "mixed" for engine in facts.engines):
        return RoundResult(turn.memory, outcome={"mode": mode, "reason": "the pool has no roles"})
    memory = msgspec.convert(turn.memory, prepared(RatioMemory))
    loads = role_loads(facts, observed, settings.window_s)
    plan, after = plan_ratio(facts, loads, memory, settings, override_prefill=wished)
    failing = why_no_start(facts) if plan.role_changes else None
    if failing is not None and not actuator_of(turn.pool).can_change_role:
        # An engine would stop although its replacement cannot start.
        plan, after = msgspec.structs.replace(plan, role_changes=(), reasons=(failing, *plan.reasons)), memory
    acts = mode in (ACT, OVERRIDE)
    # A role change that is not carried out must not start the pause after one.
    kept = after if acts or not plan.role_changes else memory
    result = planned(
        turn,
        JOB,
        plan,
        kept,
        mode=mode,
        changes=bool(plan.role_changes),
        carried_out=acts and bool(plan.role_changes),
        inputs={"engines": len(facts.engines), "loads": len(loads)},
        figures={name: getattr(plan, name) for name in _FIGURES},
        outcome={"role_changes": len(plan.role_changes) if acts else 0},
    )
    if acts and plan.role_changes:
        role_changes = [(change.engine_id, change.after) for change in plan.role_changes]
        effect = partial(
            request_role_changes, turn.pool, role_changes, actor=ACTOR, why=plan.reasons[0].text, at=turn.at
        )
        result.effects.append(effect)
    return result
