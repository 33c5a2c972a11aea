"""The Agents page: the graph in force, learning from the request log, editing, and rejections."""

from __future__ import annotations

import re
import time
from typing import Any

import msgspec
import pytest
from django.http import HttpResponse
from django.test import Client

from controlplane.fleet.models.pool import Pool
from controlplane.platform.jobs.calculation import LEASE
from controlplane.platform.jobs.lease import finish, take_waiting
from controlplane.platform.models.job_run import JobRun, JobState
from controlplane.request_log.call_graph import JOB
from controlplane.request_log.call_graph_child import graph_of as learned_by_child
from controlplane.request_log.models.call_graph import graph_in_force, stored_call_graph
from routing.advisories.call_graph import CallGraph, NextAgent
from tests.controlplane.request_log.recordings.traffic import record, row
from tests.web.role_clients import ROLES, client_of, make_person
from web.request_log.call_graph import graph_of, rows_of

pytestmark = pytest.mark.django_db
GRAPH = CallGraph(
    {"engineer": (NextAgent("reviewer", 0.7, 5.8), NextAgent("manager", 0.3, 2.0)), "reviewer": (), "manager": ()}
)


@pytest.fixture
def admin(pool: Pool) -> Client:
    return client_of(make_person("admin"))


def words(answer: HttpResponse) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode()))


def send(client: Client, graph: CallGraph = GRAPH, **changes: Any) -> HttpResponse:
    rows = rows_of(graph)
    form: dict[str, Any] = {name: [item[name] for item in rows] + [""] for name in ("agent", "next", "share", "after")}
    revision = stored_call_graph().revision
    return client.post("/cache/agents", {**form, "act": "save", "revision": revision, "why": "tests", **changes})


@pytest.mark.parametrize("role", ROLES)
def test_the_page_requires_a_role_in_all_pools(pool: Pool, role: str) -> None:
    answer = client_of(make_person(role, pool)).get("/cache/agents")
    assert answer.status_code == (200 if role in ("viewer", "operator", "admin", "superuser") else 403)
    assert (b"Apply" in answer.content) == (role in ("admin", "superuser"))


def test_rows_and_graph_say_the_same() -> None:
    assert msgspec.convert({"agents": graph_of(rows_of(GRAPH))}, CallGraph) == GRAPH


def test_an_edited_graph_is_in_force_and_shown(admin: Client) -> None:
    assert "Send the headers" in words(admin.get("/cache/agents"))
    answer = send(admin)
    assert answer.status_code == 303
    assert graph_in_force() == GRAPH
    page = words(admin.get(answer["location"]))
    assert "3 agents, 2 calls between them" in page
    assert re.search(r"reviewer 70.0.% 5.80.s", page)
    assert "gateways apply it within a second" in page


def test_a_change_needs_a_reason_and_the_newest_revision(admin: Client) -> None:
    assert send(admin, why="").status_code == 422
    assert send(admin).status_code == 303
    stale = send(admin, CallGraph({"engineer": ()}), revision=1)
    assert stale.status_code == 409
    assert "Another person" in words(stale)
    assert graph_in_force() == GRAPH


@pytest.mark.parametrize(("field", "value"), [("share", "many"), ("share", "150"), ("after", "-1"), ("after", "")])
def test_wrong_numbers_are_named_and_nothing_changes(admin: Client, field: str, value: str) -> None:
    rows = rows_of(GRAPH)
    answer = send(admin, **{field: [value, *(item[field] for item in rows[1:]), ""]})
    assert answer.status_code == 422
    assert value in answer.content.decode()
    assert graph_in_force() == CallGraph({})


def test_a_graph_is_learned_from_the_request_log_and_applied_by_a_person(admin: Client) -> None:
    begin = time.time() - 600
    steps = [("engineer", 0.0), ("reviewer", 6.0), ("engineer", 10.0), ("manager", 12.0)]
    record([row(arrived_at=begin + after, agent=agent, workflow="w") for agent, after in steps])
    begun = admin.post("/cache/agents", {"act": "learn", "hours": "1"})
    assert begun.status_code == 303
    run = JobRun.objects.get(job=JOB)
    assert (run.inputs, run.state) == ({"hours": 1}, JobState.ACTIVE)
    page = begun["location"]
    assert "Reading the request log" in words(admin.get(page))
    assert admin.post("/cache/agents", {"act": "learn", "hours": "1"}).status_code == 409, "one at a time"
    (lease,) = take_waiting(JOB, LEASE)
    finish(lease, outcome={"summary": "3 agents"})
    result = msgspec.to_builtins(learned_by_child(msgspec.json.encode(run.inputs), lambda _share: None))
    JobRun.objects.filter(pk=run.pk).update(memory={"result": result})
    shown = admin.get(page)
    assert "Learned, not in force" in words(shown)
    assert 'value="reviewer"' in shown.content.decode()
    assert graph_in_force() == CallGraph({})
    learned = msgspec.convert(result, CallGraph)
    assert learned.agents["engineer"] == (NextAgent("manager", 0.5, 2.0), NextAgent("reviewer", 0.5, 6.0))
    send(admin, learned)
    assert graph_in_force().agents == learned.agents


def test_a_log_without_agents_says_so(admin: Client) -> None:
    record([row(arrived_at=time.time() - 5)])
    run = JobRun.objects.get(pk=admin.post("/cache/agents", {"act": "learn"})["location"].partition("=")[2])
    (lease,) = take_waiting(JOB, LEASE)
    finish(lease, outcome={"summary": "0 agents"})
    JobRun.objects.filter(pk=run.pk).update(memory={"result": {"agents": {}}})
    assert "No recorded request of that time names an agent" in words(admin.get(f"/cache/agents?learned={run.pk}"))
