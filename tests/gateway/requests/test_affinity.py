"""The affinity key of a conversation: the part that its turns share."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.requests.affinity import affinity_of
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
