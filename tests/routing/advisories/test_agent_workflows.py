import random

import msgspec
import pytest

from routing.advisories.agent_workflows import AgentAdvice, AgentWorkflows, NextSession
from routing.advisories.call_graph import MOST_AGENTS, MOST_NEXT, AgentCall, CallGraph, NextAgent, learn_call_graph

GRAPH = CallGraph(
    agents={
        "engineer": (NextAgent("reviewer", 0.7, 5.0), NextAgent("manager", 0.25, 3.0), NextAgent("tester", 0.05, 3.0)),
        "reviewer": (NextAgent("engineer", 0.9, 6.0), NextAgent("manager", 0.1, 6.0)),
        "manager": (NextAgent("engineer", 1.0, 2.0),),
        "tester": (),
    }
)


def workflows(limit: int = 10) -> AgentWorkflows[str]:
    return AgentWorkflows(GRAPH, limit)


def test_an_agent_that_has_no_session_yet_is_not_advised() -> None:
    assert workflows().started("w", "engineer", "e") == AgentAdvice()


def test_all_probable_next_agents_are_advised_and_wrong_branches_withdrawn() -> None:
    known = workflows()
    for agent in ("tester", "manager", "reviewer"):
        known.started("w", agent, agent[0])
    assert known.started("w", "engineer", "e").advise == (NextSession("r", 5.0), NextSession("m", 3.0))
    after = known.started("w", "manager", "m")
    assert after == AgentAdvice((NextSession("e", 2.0),), ("r",))


def test_an_advisory_confirmed_by_the_next_agent_stays_valid() -> None:
    known = workflows()
    for agent in ("manager", "reviewer", "engineer"):
        known.started("w", agent, agent[0])
    after = known.started("w", "reviewer", "r")
    assert {item.session for item in after.advise} == {"e", "m"}
    assert after.invalidate == ()


def test_workflows_do_not_mix_and_an_agent_outside_the_graph_is_ignored() -> None:
    known = workflows()
    known.started("one", "reviewer", "r1")
    assert known.started("two", "engineer", "e2") == AgentAdvice()
    assert known.started("one", "stranger", "s") == AgentAdvice()


def test_the_longest_silent_workflow_is_evicted_at_the_limit() -> None:
    known = workflows(limit=2)
    for workflow in ("a", "b", "a", "c"):
        known.started(workflow, "reviewer", f"r-{workflow}")
    assert len(known) == 2
    assert known.started("b", "engineer", "e") == AgentAdvice()
    assert known.started("c", "engineer", "e").advise == (NextSession("r-c", 5.0),)


def test_every_advisory_is_renewed_withdrawn_or_used() -> None:
    rng, known, in_force = random.Random(4), workflows(100), set[str]()
    for _ in range(2_000):
        agent = rng.choice(list(GRAPH.agents))
        advice = known.started("w", agent, agent)
        assert agent not in advice.invalidate
        assert set(advice.invalidate) <= in_force
        renewed = {item.session for item in advice.advise}
        assert in_force - set(advice.invalidate) - {agent} <= renewed
        in_force = renewed


def calls(workflow: str, *steps: tuple[str, float]) -> list[AgentCall]:
    return [AgentCall(workflow, agent, at_s) for agent, at_s in steps]


def test_next_agents_have_their_share_and_median_time() -> None:
    graph = learn_call_graph(
        [
            *calls("a", ("engineer", 0.0), ("reviewer", 4.0), ("engineer", 9.0), ("manager", 11.0)),
            *calls("b", ("engineer", 100.0), ("reviewer", 106.0)),
        ]
    )
    assert graph.agents["engineer"] == (NextAgent("reviewer", 0.6667, 5.0), NextAgent("manager", 0.3333, 2.0))
    assert graph.agents["reviewer"] == (NextAgent("engineer", 0.5, 5.0),)
    assert graph.agents["manager"] == ()
    assert graph.calls == {"engineer": 3, "manager": 1, "reviewer": 2}


def test_the_order_of_calls_does_not_matter() -> None:
    made = [*calls("a", ("x", 0.0), ("y", 1.0), ("x", 2.0)), *calls("b", ("y", 0.5), ("x", 0.7))]
    assert learn_call_graph(made) == learn_call_graph(made[::-1])


def test_calls_of_different_workflows_are_not_linked() -> None:
    assert learn_call_graph([*calls("a", ("x", 0.0)), *calls("b", ("y", 1.0))]).agents == {"x": (), "y": ()}


def test_rare_branches_and_branches_beyond_the_limit_are_omitted() -> None:
    usual = [call for n in range(99) for call in calls(f"{n}", ("x", 0.0), ("y", 1.0))]
    assert len(learn_call_graph([*usual, *calls("r", ("x", 0.0), ("z", 1.0))]).agents["x"]) == 1
    many = [call for n in range(12) for call in calls(f"{n}", ("x", 0.0), (f"y{n}", 1.0))]
    assert len(learn_call_graph(many).agents["x"]) == MOST_NEXT


def test_agent_names_that_vary_per_call_are_rejected() -> None:
    with pytest.raises(ValueError, match="role"):
        learn_call_graph(calls("a", *((f"call-{n}", float(n)) for n in range(MOST_AGENTS + 1))))


def test_a_graph_round_trips_through_json_and_an_invalid_one_is_rejected() -> None:
    graph = learn_call_graph(calls("a", ("x", 0.0), ("y", 1.0)))
    assert msgspec.json.decode(msgspec.json.encode(graph), type=CallGraph) == graph
    for wrong in (b'{"agents": {"x": [{"agent": "y", "probability": 2, "after_s": 1}]}}', b'{"agent": {}}'):
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(wrong, type=CallGraph)
