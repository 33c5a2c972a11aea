import random

from routing.advisories.agent_workflows import AgentAdvice, AgentWorkflows, NextSession
from routing.advisories.call_graph import CallGraph, NextAgent

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
