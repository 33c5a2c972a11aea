import random
from itertools import count, pairwise

from simulator.sessions.agents import ROLES, AgentProject
from simulator.sessions.client import NextTurn


def project(files: int = 2) -> AgentProject:
    return AgentProject(random.Random(1), count(), 128_000, files=files)


def turns(agents: AgentProject, many: int) -> list[NextTurn]:
    return [agents.next_turn() for _ in range(many)]


def test_every_agent_has_one_session_per_project() -> None:
    assert len({turn.session.session_id for turn in turns(project(files=20), 40)}) == len(ROLES)


def test_a_new_project_starts_with_new_sessions() -> None:
    assert len({turn.session.session_id for turn in turns(project(files=1), 100)}) > len(ROLES)


def test_an_engineer_and_a_reviewer_speak_in_turn() -> None:
    called = [turn.session.session_id for turn in turns(project(files=3), 9)[3:]]
    assert called == called[:2] * 3


def test_the_agent_that_might_be_called_instead_is_advised_too() -> None:
    called = turns(project(), 5)
    assert [session.session_id for session in called[4].also_advised] == [called[2].session.session_id]
    assert not called[3].also_advised


def test_an_advisory_goes_out_when_the_agent_before_starts() -> None:
    assert [turn.lead_s for turn in turns(project(), 3)] == [0.0, None, None]


def test_a_prompt_holds_the_answer_before_it() -> None:
    for before, after in pairwise(turns(project(), 8)):
        assert after.prompt_tokens > before.answer_tokens
