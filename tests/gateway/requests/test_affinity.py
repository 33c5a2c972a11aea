"""The affinity key of a conversation: the part that its turns share."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.requests.affinity import affinity_of
from gateway.requests.caller_facts import agent_of, session_of_agent
from gateway.requests.formats.prompt import ChatPrompt, HashedPrompt, TextPrompt, TokenPrompt, UnmatchedPrompt


def turns(*contents: str) -> ChatPrompt:
    roles = ["system", *["user", "assistant"] * len(contents)]
    return ChatPrompt([{"role": role, "content": text} for role, text in zip(roles, contents, strict=False)], {})


def test_turns_of_a_conversation_share_one_affinity_and_conversations_differ() -> None:
    first = affinity_of("", turns("be kind", "hello"))
    assert affinity_of("", turns("be kind", "hello", "hi", "and now?")) == first
    assert affinity_of("", turns("be kind", "good morning")) != first
    assert affinity_of("s1", turns("be kind", "hello")) == affinity_of("s1", None) == b"s1"


@pytest.mark.parametrize(
    ("short", "long"),
    [
        (TextPrompt("x" * 4096), TextPrompt("x" * 4096 + "more")),
        (TokenPrompt([7] * 1024), TokenPrompt([7] * 2000)),
        (HashedPrompt([1, 2, 3, 4], None), HashedPrompt([1, 2, 3, 4, 5], None)),
    ],
)
def test_a_prompt_that_grows_keeps_its_affinity(short: Any, long: Any) -> None:
    assert affinity_of("", short) == affinity_of("", long) != b""


def test_a_prompt_that_is_matched_with_no_cache_has_no_affinity() -> None:
    assert affinity_of("", UnmatchedPrompt(10)) == b""


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
