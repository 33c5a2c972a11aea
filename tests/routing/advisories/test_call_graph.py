import msgspec
import pytest

from routing.advisories.call_graph import MOST_AGENTS, MOST_NEXT, AgentCall, CallGraph, NextAgent, learn_call_graph


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
