"""The call graph of agents: reads and replaces it, and learns one from the request log for a person to check.

Gateways get the graph in force with the snapshot, so that a change needs no restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from celery import shared_task
from django.db import transaction

from controlplane.platform import recorded_change
from controlplane.platform.actor import Actor
from controlplane.platform.field_problems import FieldProblem, InvalidFieldsError
from controlplane.platform.jobs.calculation import serve_calculations, start_calculation
from controlplane.platform.jobs.one_at_a_time import one_at_a_time
from controlplane.platform.models.job_run import JobRun
from controlplane.platform.role import Role
from controlplane.platform.roles import require
from controlplane.request_log.models.call_graph import StoredCallGraph
from controlplane.request_log.store.segments import recorded_traffic
from routing.advisories.call_graph import AgentCall, CallGraph, learn_call_graph
from routing.values.counted import count
from routing.values.prepared_struct import prepared

JOB = "call_graph"
MAX_HOURS = 24 * 7


def checked_graph(agents: object) -> CallGraph:
    """Return the graph of these agents. Raises InvalidFieldsError unless it is valid."""
    try:
        return msgspec.convert({"agents": agents}, prepared(CallGraph))
    except msgspec.ValidationError as error:
        raise InvalidFieldsError([FieldProblem("agents", f"{error}.")]) from error


def replace_call_graph(
    row: StoredCallGraph, given: Mapping[str, Any], *, actor: Actor, expected: int | None = None, why: str = ""
) -> StoredCallGraph:
    """Replace the graph. Raises NotAllowedError, InvalidFieldsError, StaleRevisionError."""
    require(actor, Role.ADMIN)
    changes = {"agents": msgspec.to_builtins(checked_graph(given.get("agents", row.agents)).agents)}
    with transaction.atomic():
        # The change locks the stored row, so there must be one.
        StoredCallGraph.objects.get_or_create(pk=StoredCallGraph.ONLY)
        return recorded_change.change(row, changes, "call_graph.change", actor=actor, expected=expected, why=why)


def recorded_call_graph(begin: float, end: float, pool: str = "") -> CallGraph:
    """Return the graph of the calls recorded in [begin, end), in unix seconds, in all pools or in one pool.

    Raises ValueError if there are implausibly many agent names.
    """
    rows = recorded_traffic(begin, end)
    return learn_call_graph(
        AgentCall(f"{row.tenant} {row.workflow}", row.agent, row.arrived_at)
        for row in rows
        if row.agent and row.workflow and pool in ("", row.pool)
    )


def start_learning(hours: int, actor: Actor) -> JobRun:
    """Learn from the last hours of the request log. Raises NotAllowedError and ConflictError."""
    require(actor, Role.ADMIN)
    return start_calculation(JOB, {"hours": max(1, min(hours, MAX_HOURS))})


def learned_graph(run: JobRun) -> CallGraph | None:
    """Return the result of a run; None: it has none, or a newer run has replaced it."""
    result = run.memory.get("result")
    return msgspec.convert(result, prepared(CallGraph)) if result is not None else None


@shared_task(name="controlplane.call_graph", ignore_result=True)
@one_at_a_time
def call_graph() -> None:
    """Learn the graph that a person waits for."""
    serve_calculations(JOB, "controlplane.request_log.call_graph_child", _summary)


def _summary(result: Any) -> str:
    return count(len(result["agents"]), "agent")
