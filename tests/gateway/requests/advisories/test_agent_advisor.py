"""Requests of agents advise the sessions of the agents likely to follow, and withdraw wrong advisories."""

from __future__ import annotations

from pathlib import Path

from gateway.contracts.stored_decision import StoredDecision
from gateway.reports.decision_recorder import current_decision
from gateway.requests.advisories.agent_advisor import SOURCE
from routing.advisories.call_graph import NO_AGENTS, CallGraph, NextAgent
from tests.gateway.kv.nodes.test_loads_end_to_end import BLOCKS, CHAT, Fleet, a_node, body, serving
from tests.gateway.requests.advisories.test_advisories_end_to_end import outcomes, policy
from tests.patience import until

GRAPH = CallGraph(
    agents={
        "engineer": (NextAgent("reviewer", 0.7, 30.0), NextAgent("manager", 0.3, 30.0)),
        "reviewer": (),
        "manager": (),
    }
)


async def ask(fleet: Fleet, agent: str, workflow: str = "run-1", prompt: str = "") -> StoredDecision:
    fields = {"messages": [{"role": "user", "content": prompt}]} if prompt else {}
    headers = {"x-agent": agent, "x-workflow-id": workflow}
    status, answer, response_headers = await fleet.gateway.post(CHAT, body(**fields), headers=headers)
    assert status == 200, answer
    record = fleet.gateway.app.recent.get(response_headers["x-headway-decision"])
    assert record is not None
    return current_decision(record)


async def only(fleet: Fleet, engine_id: str) -> None:
    other = {"engine-0": "engine-1", "engine-1": "engine-0"}[engine_id]
    fleet.keep_out(other)
    await until(lambda: fleet.gateway.pool.accepting == {engine_id})


async def test_the_next_agents_kv_moves_while_the_previous_agent_works(tmp_path: Path) -> None:
    with a_node("a") as (_, one), a_node("b") as (_, other):
        nodes = {"a": one, "b": other}
        async with serving(tmp_path, nodes, policy=policy("gated"), call_graph=GRAPH) as fleet:
            await until(lambda: fleet.holding("a") and fleet.holding("b"))
            await only(fleet, "engine-0")
            for agent in ("reviewer", "manager"):
                await ask(fleet, agent)
            await ask(fleet, "reviewer", "run-2")
            await until(lambda: fleet.blocks("a") == BLOCKS)
            await only(fleet, "engine-1")
            await ask(fleet, "engineer", prompt="write the parser")
            advisories = fleet.gateway.gateway.advisories
            await until(lambda: len(advisories) == 2)
            await until(lambda: fleet.blocks("b") >= BLOCKS)
            record = await ask(fleet, "reviewer")
            assert record.advisory is not None
            assert (record.advisory.outcome, record.advisory.moved_to) == ("useful", "b")
            assert record.advisory.expected_s == 30.0
            assert record.load is not None
            assert record.load.saved_tokens == 16 * BLOCKS
            await until(lambda: outcomes(fleet, "withdrawn") == 1)
            assert len(advisories) == 0
            assert {source.source for source in advisories.tallies().sources} == {SOURCE}


async def test_a_new_call_graph_applies_to_running_workflows_without_a_restart(tmp_path: Path) -> None:
    with a_node("a") as (_, one), a_node("b") as (_, other):
        async with serving(tmp_path, {"a": one, "b": other}, policy=policy("gated"), call_graph=GRAPH) as fleet:
            advisories = fleet.gateway.gateway.advisories
            for agent in ("reviewer", "manager"):
                await ask(fleet, agent)
            await ask(fleet, "engineer", prompt="write the parser")
            await until(lambda: len(advisories) == 2)
            turned = CallGraph({"engineer": (NextAgent("manager", 0.9, 3.0),), "manager": (), "reviewer": ()})
            fleet.publish(call_graph=turned)
            await until(lambda: fleet.gateway.gateway.snapshot_version == fleet.first.version)
            await ask(fleet, "engineer", prompt="write the next one")
            await until(lambda: len(advisories) == 1)
            assert advisories.state("tenant-a", "run-1/manager") is not None
            fleet.publish(call_graph=NO_AGENTS)
            await until(lambda: fleet.gateway.gateway.snapshot_version == fleet.first.version)
            await ask(fleet, "engineer", "run-2")
            assert advisories.state("tenant-a", "run-2/manager") is None


async def test_without_a_call_graph_no_session_is_advised(tmp_path: Path) -> None:
    with a_node("a") as (_, one), a_node("b") as (_, other):
        async with serving(tmp_path, {"a": one, "b": other}, policy=policy("gated")) as fleet:
            for agent in ("reviewer", "engineer"):
                await ask(fleet, agent)
            assert len(fleet.gateway.gateway.advisories) == 0
