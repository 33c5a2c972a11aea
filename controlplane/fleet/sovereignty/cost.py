"""The job that simulates what sovereignty rules cost on the installation's regions."""

from __future__ import annotations

from typing import Any

import msgspec
from celery import shared_task
from django.db.models import Count

from controlplane.fleet.models.engine import Engine
from controlplane.platform.conflict import ConflictError
from controlplane.platform.jobs.calculation import serve_calculations, start_calculation
from controlplane.platform.jobs.one_at_a_time import one_at_a_time
from controlplane.platform.models.job_run import JobRun
from routing.regions.sovereignty import SovereigntyDocument
from routing.values.counted import count
from routing.values.prepared_struct import prepared
from simulator.regions.sovereignty_cost import MOST_REGIONS, CostQuestion, SovereigntyCost

JOB = "sovereignty_cost"


def start_cost(document: SovereigntyDocument) -> JobRun:
    """Queue a simulation of the rules with the registered engines.

    Raises ConflictError if the fleet does not fit, or while another one runs.
    """
    engines = dict(
        Engine.objects.values_list("pool__region__slug").annotate(count=Count("pk")).order_by("pool__region__slug")
    )
    if not 2 <= len(engines) <= MOST_REGIONS:
        raise ConflictError(f"The simulation takes 2 to {MOST_REGIONS} regions with engines; there are {len(engines)}.")
    return start_calculation(JOB, msgspec.to_builtins(CostQuestion(document, engines)))


def question_of(run: JobRun) -> CostQuestion:
    """Return the rules and engines of a run."""
    return msgspec.convert(run.inputs, prepared(CostQuestion))


def cost_of(run: JobRun) -> SovereigntyCost | None:
    """Return the result of a run; None: it has none, or a newer run has replaced it."""
    return msgspec.convert(run.memory["result"], prepared(SovereigntyCost)) if "result" in run.memory else None


@shared_task(name="controlplane.sovereignty_cost", ignore_result=True)
@one_at_a_time
def sovereignty_cost() -> None:
    """Simulate the waiting rules."""
    serve_calculations(JOB, "simulator.regions.sovereignty_cost", _summary)


def _summary(result: Any) -> str:
    return f"{count(len(result['engines']), 'region')}, {result['ruled']['over_free']:.1%} of the throughput"
