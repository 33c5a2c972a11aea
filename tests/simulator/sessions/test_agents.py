import random
from itertools import count, pairwise

from simulator.sessions.agents import ROLES, AgentProject, profiled_call_graph
from simulator.sessions.turn import NextTurn


def project(files: int = 2) -> AgentProject:
    return AgentProject(random.Random(1), count(), 128_000, files=files)


def turns(agents: AgentProject, many: int) -> list[NextTurn]:
    return [agents.next_turn() for _ in range(many)]


def test_every_agent_has_one_session_per_project() -> None:
    assert len({turn.session.session_id for turn in turns(project(files=20), 40)}) == len(ROLES)


def test_a_new_project_starts_with_new_sessions() -> None:
    assert len({turn.session.session_id for turn in turns(project(files=1), 100)}) > len(ROLES)


def test_an_engineer_and_a_reviewer_alternate() -> None:
    called = [turn.session.session_id for turn in turns(project(files=3), 9)[3:]]
    assert called == called[:2] * 3


def test_the_project_manager_is_called_before_some_files() -> None:
    called = [turn.agent for turn in turns(project(files=50), 150)[3:]]
    assert {after for before, after in pairwise(called) if before == "reviewer"} == {"engineer", "project_manager"}
    assert {after for before, after in pairwise(called) if before == "engineer"} == {"reviewer"}


def test_all_requests_of_a_project_name_it() -> None:
    called = turns(project(files=2), 60)
    begins = [n for n, turn in enumerate(called) if turn.agent == ROLES[0]]
    assert len(begins) > 2
    for begin, end in pairwise(begins):
        assert len({turn.workflow for turn in called[begin:end]}) == 1
    assert len({called[n].workflow for n in begins}) == len(begins)


def test_the_call_graph_matches_the_projects() -> None:
    graph = profiled_call_graph("8b")
    assert [agent.agent for agent in graph.agents["engineer"]] == ["reviewer"]
    assert [agent.agent for agent in graph.agents["reviewer"]] == ["engineer", "project_manager"]
    times = [item.after_s for following in graph.agents.values() for item in following]
    assert 2 < min(times) <= max(times) < 8


def test_a_prompt_contains_the_previous_response() -> None:
    for before, after in pairwise(turns(project(), 8)):
        assert after.prompt_tokens > before.answer_tokens
