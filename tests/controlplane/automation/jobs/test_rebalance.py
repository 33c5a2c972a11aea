"""Rebalancing: advice publishes nothing. In mode act, a move is stored and then published to the gateways."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from controlplane.automation.jobs import rebalance as job
from controlplane.automation.models.plan_record import PlanRecord
from controlplane.automation.rounds import run_rounds
from controlplane.platform.models.job_run import JobRun
from gateway.contracts.rebalance_order import decode_order
from tests.controlplane.automation.world import World

pytestmark = pytest.mark.django_db

TOPIC = "rebalance/chat"


def live(world: World, seconds: float, capture: Any) -> None:
    def after_step() -> None:
        world.pool = type(world.pool).objects.get(pk=world.pool.pk)
        work = partial(job.even_out, observed=world.observed, bus=world.bus)
        with capture(execute=True):
            run_rounds(job.JOB, timedelta(seconds=1), work, pools=[world.pool], clock=world.clock)

    world.pass_time(seconds, after_step=after_step)


def heat(world: World) -> None:
    for name, work_s in (("e-01", 30.0), ("e-02", 1.0), ("e-03", 1.0), ("e-04", 1.0)):
        world.say(name, in_flight_s=work_s, bound=20 if work_s > 1 else 0)


def test_advice_is_recorded_and_not_published_to_gateways(
    world: World, django_capture_on_commit_callbacks: Any
) -> None:
    heat(world)
    live(world, 10, django_capture_on_commit_callbacks)
    assert world.bus.latest(TOPIC) is None
    record = PlanRecord.objects.filter(job="rebalance", changes=True).latest("pk")
    assert (record.mode, record.outcome["carried_out"]) == ("advise", False)
    assert record.figures["load_cv"] > 1.0


def test_move_reaches_the_gateways_under_the_fencing_token_of_its_lease(
    world: World, django_capture_on_commit_callbacks: Any
) -> None:
    world.policy(rebalance={"mode": "act"})
    heat(world)
    live(world, 10, django_capture_on_commit_callbacks)
    data = world.bus.latest(TOPIC)
    assert data is not None
    order, widened = decode_order(data)
    assert order.fence == JobRun.objects.get(job="rebalance").fencing_token
    assert [move.engine_id for move in order.moves] == ["e-01"]
    assert widened == {}


def test_balanced_pool_reports_why_it_does_nothing(world: World, django_capture_on_commit_callbacks: Any) -> None:
    live(world, 5, django_capture_on_commit_callbacks)
    run = JobRun.objects.get(job="rebalance")
    assert run.outcome["reason"]
    assert PlanRecord.objects.filter(job="rebalance").count() == 1
