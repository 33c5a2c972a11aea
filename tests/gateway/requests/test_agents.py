from gateway.requests.agents import agent_of, session_of_agent


def test_an_agent_without_a_workflow_is_ignored() -> None:
    assert agent_of({b"x-agent": b"engineer"}) == ("", "")
    assert agent_of({b"x-workflow-id": b"run-1"}) == ("", "")
    assert session_of_agent("", "") == ""


def test_an_agent_has_one_session_per_workflow() -> None:
    named = agent_of({b"x-agent": b" engineer ", b"x-workflow-id": b"run-1"})
    assert named == ("engineer", "run-1")
    assert session_of_agent(*named) == "run-1/engineer"


def test_names_are_truncated_to_their_limits() -> None:
    agent, workflow = agent_of({b"x-agent": b"a" * 200, b"x-workflow-id": b"w" * 400})
    assert (len(agent), len(workflow), len(session_of_agent(agent, workflow))) == (128, 256, 256)
