"""The Agents page: which agents call which, learned from the request log, edited, and in force without a restart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_http_methods

from controlplane.platform.conflict import ConflictError
from controlplane.platform.format import one_line
from controlplane.platform.models.job_run import JobRun, JobState
from controlplane.platform.revisions import StaleRevisionError
from controlplane.platform.role import Role
from controlplane.platform.roles import may
from controlplane.request_log.call_graph import (
    JOB,
    MAX_HOURS,
    learned_graph,
    replace_call_graph,
    start_learning,
)
from controlplane.request_log.models.call_graph import graph_in_force, stored_call_graph
from routing.advisories.call_graph import CallGraph
from routing.values.counted import count
from web.shell.console_request import console_actor, go, row_number, sent, why
from web.shell.frame import shell_context
from web.shell.no_role import needs_all_pools
from web.shell.rejection import FormRejection, attempted

ADDRESS, PAGE = "/cache/agents", "Cache"
MAX_ROWS, EMPTY_ROWS = 400, 2
FIELDS = ("agent", "next", "share", "after")
SAID = {"changed": "Call graph changed; gateways apply it within a second."}
NO_REASON = "Say why the call graph changes; the audit keeps it. Nothing was changed."
STALE = "Another person changed the call graph while you edited. Compare with the graph in force, then save again."

Row = dict[str, str]


def rows_of(graph: CallGraph) -> list[Row]:
    """Return one row per call: agent, next agent, share in percent, seconds later. An agent that ends has one row."""
    return [
        {"agent": agent, "next": item.agent, "share": f"{100 * item.probability:g}", "after": f"{item.after_s:g}"}
        for agent, following in graph.agents.items()
        for item in following
    ] + [
        {"agent": agent, "next": "", "share": "", "after": ""}
        for agent, following in graph.agents.items()
        if not following
    ]


def graph_of(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the agents of these rows. Numbers that cannot be read stay as they are, for the check to name them."""
    agents: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        following = agents.setdefault(row["agent"], [])
        if row["next"]:
            share, after = _number(row["share"]), _number(row["after"])
            share = round(share / 100, 6) if isinstance(share, float) else share
            following.append({"agent": row["next"], "probability": share, "after_s": after})
            agents.setdefault(row["next"], [])
    for following in agents.values():
        following.sort(key=lambda item: -item["probability"] if isinstance(item["probability"], float) else 0.0)
    return agents


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


@require_http_methods(["GET", "HEAD", "POST"])
@needs_all_pools(PAGE, "The call graph applies to all pools. Viewing it")
def agents(request: HttpRequest) -> HttpResponse:
    """Show the graph; on POST learn one from the request log, or put an edited one in force."""
    if request.method != "POST":
        run = JobRun.objects.filter(job=JOB, pk=row_number(request.GET.get("learned"))).first()
        learned = learned_graph(run) if run is not None else None
        return _page(request, rows_of(learned or graph_in_force()), run=run, learned=learned)
    actor = console_actor(request)
    rows = _sent_rows(request)
    if sent(request, "act") == "learn":
        hours = row_number(sent(request, "hours"), 3) or 24
        begun = attempted(lambda: start_learning(hours, actor), ConflictError)
        if isinstance(begun, FormRejection):
            return _page(request, rows_of(graph_in_force()), problem=begun.words, status=begun.status)
        return go(ADDRESS, learned=str(begun.pk))
    if not why(request):
        return _page(request, rows, problem=NO_REASON, status=422)
    expected = row_number(request.POST.get("revision"))
    given = {"agents": graph_of(rows)}
    saved = attempted(
        lambda: replace_call_graph(stored_call_graph(), given, actor=actor, expected=expected, why=why(request)),
        StaleRevisionError,
    )
    if isinstance(saved, FormRejection):
        return _page(request, rows, problem=STALE if saved.status == 409 else saved.words, status=saved.status)
    return go(ADDRESS, said="changed")


def _sent_rows(request: HttpRequest) -> list[Row]:
    columns = [[one_line(item)[:128] for item in request.POST.getlist(name)[:MAX_ROWS]] for name in FIELDS]
    return [dict(zip(FIELDS, row, strict=True)) for row in zip(*columns, strict=False) if any(row)]


def _page(
    request: HttpRequest,
    rows: list[Row],
    *,
    run: JobRun | None = None,
    learned: CallGraph | None = None,
    problem: str = "",
    status: int = 200,
) -> HttpResponse:
    in_force = graph_in_force()
    running = run is not None and run.state == JobState.ACTIVE
    context = shell_context(
        request,
        page=PAGE,
        tab="agents",
        finding={"text": _finding(in_force), "shape": ""},
        in_force=[(agent, following) for agent, following in in_force.agents.items()][:MAX_ROWS],
        rows=[*rows[:MAX_ROWS], *(dict.fromkeys(FIELDS, "") for _ in range(EMPTY_ROWS))],
        run=run,
        running=running,
        learned=learned is not None,
        has_learned=learned is not None and bool(learned.agents),
        may_change=may(console_actor(request), Role.ADMIN),
        revision=stored_call_graph().revision,
        max_hours=MAX_HOURS,
        problem=problem,
        said=SAID.get(request.GET.get("said", ""), ""),
    )
    part = "request_log/call_graph_form.html" if "fragment" in request.GET else "request_log/call_graph.html"
    return render(request, part, context, status=status)


def _finding(in_force: CallGraph) -> str:
    calls = sum(len(following) for following in in_force.agents.values())
    return (
        f"{count(len(in_force.agents), 'agent')}, {count(calls, 'call')} between them"
        if calls
        else "No call graph is in force"
    )
