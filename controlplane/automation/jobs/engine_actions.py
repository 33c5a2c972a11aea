"""Carries out the automations' actions, one step at a time, through each pool's actuator."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

from celery import shared_task
from django.db.models import Q
from django.utils import timezone

from controlplane.automation.action_steps import StepContext, advance
from controlplane.automation.actuators.registry import actuator_of
from controlplane.automation.models.engine_action import OPEN_STATES, ActionState, EngineAction
from controlplane.automation.observation import FleetObservation, fleet_observation
from controlplane.automation.pool_policy import pool_automation_of
from controlplane.automation.rounds import Round, RoundResult, run_rounds
from controlplane.fleet.models.pool import Pool
from controlplane.platform.jobs.lease import LONGEST

JOB = "engine_actions"
EVERY = timedelta(seconds=0.5)
BUDGET_S = 4.0
"""A round begins no further step after this time, so that it ends before its lease."""
MAX_STEPS = 100


@shared_task(name="controlplane.engine_actions", ignore_result=True)
def engine_actions() -> None:
    """Run every second: one round of each pool that has open actions."""
    pools = Pool.objects.filter(engine_actions__state__in=OPEN_STATES).distinct().select_related("automation")
    run_rounds(JOB, EVERY, partial(carry_out, observed=fleet_observation()), pools=pools)


def carry_out(turn: Round, *, observed: FleetObservation, clock: Callable[[], datetime] = timezone.now) -> RoundResult:
    """Advance each due action of the pool by one step. New actions of a frozen pool wait."""
    states = [state for state in OPEN_STATES if state != ActionState.WANTED or not pool_automation_of(turn.pool).frozen]
    # A next try further away than any pause was set before the clock was set back.
    waits = Q(next_try_at__gt=turn.at, next_try_at__lte=turn.at + LONGEST)
    due = EngineAction.objects.filter(~waits, pool=turn.pool, state__in=states)
    context = StepContext(actuator_of(turn.pool), observed, clock)
    began_s = time.monotonic()
    steps = 0
    for action in due.select_related("pool", "engine__pool").order_by("requested_at", "pk")[:MAX_STEPS]:
        advance(action, context)
        steps += 1
        if time.monotonic() - began_s > BUDGET_S:
            break
    return RoundResult(turn.memory, outcome={"steps": steps})
