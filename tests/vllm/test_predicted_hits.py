"""The index predicts vLLM's cache hits, request by request."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.vllm.attached import Answer, Headway, words
from tests.vllm.real_engine import BLOCK_TOKENS

pytestmark = pytest.mark.vllm
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
TOOL = {
    "type": "function",
    "function": {
        "name": "drain_engine",
        "description": "Takes an engine out of service.",
        "parameters": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    },
}


def test_one_command_attaches_both_engines(headway: Headway, transcript: list[str]) -> None:
    assert transcript[0].count("Routing exactly.") == 2, transcript[0]
    assert headway.key.startswith("hw_")
    headway.until_serving(2)


def _twice(headway: Headway, path: str, **body: Any) -> tuple[Answer, Answer]:
    first, second = headway.ask(path, **body), headway.ask(path, **body)
    assert first.status == second.status == 200, (first.body, second.body)
    assert (first.predicted, second.predicted) == (first.cached, second.cached)
    return first, second


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": [{"role": "user", "content": words(200, "chat")}]}),
        (COMPLETIONS, {"prompt": words(200, "completion")}),
        (COMPLETIONS, {"prompt": [7 + number % 900 for number in range(200)]}),
        (COMPLETIONS, {"prompt": [100 + number % 800 for number in range(4 * BLOCK_TOKENS)]}),
        (CHAT, {"messages": [{"role": "user", "content": words(200, "tools")}], "tools": [TOOL]}),
        (
            CHAT,
            {"messages": [{"role": "user", "content": words(200, "no tool")}], "tools": [TOOL], "tool_choice": "none"},
        ),
        (
            CHAT,
            {
                "messages": [
                    {"role": "system", "content": words(90, "system")},
                    {
                        "role": "user",
                        "content": [
                            {"type": "text", "text": words(90, "part")},
                            {"type": "text", "text": words(60, "more")},
                        ],
                    },
                ]
            },
        ),
        (
            CHAT,
            {
                "messages": [{"role": "user", "content": words(200, "stream")}],
                "stream": True,
                "stream_options": {"include_usage": True},
            },
        ),
    ],
    ids=["chat", "text", "token-ids", "whole-blocks", "tools", "tool-choice", "parts", "stream"],
)
def test_a_repeated_prompt_is_cached_as_predicted(headway: Headway, path: str, body: dict[str, Any]) -> None:
    first, second = _twice(headway, path, max_tokens=4, **body)
    assert second.cached > max(first.cached, 2 * BLOCK_TOKENS)
    assert second.engine == first.engine


def test_with_several_choices_the_hits_of_the_last_one_are_counted(headway: Headway) -> None:
    """vLLM computes the prompt for the first choice, and reports the hits of the last one."""
    body = {"messages": [{"role": "user", "content": words(200, "several")}], "n": 2, "temperature": 1}
    first, second = (headway.ask(CHAT, max_tokens=2, **body) for _ in range(2))
    assert first.predicted == 0
    assert second.predicted == second.cached == first.cached > 0


def test_each_turn_of_a_conversation_hits_the_previous_turns(headway: Headway) -> None:
    messages: list[dict[str, str]] = [{"role": "system", "content": words(120, "turns")}]
    hits = []
    for turn in range(5):
        messages.append({"role": "user", "content": words(50, f"turn {turn}")})
        answer = headway.ask(CHAT, messages=messages, max_tokens=40)
        assert answer.predicted == answer.cached
        hits.append(answer.cached)
        messages.append({"role": "assistant", "content": answer.text})
    assert hits == sorted(hits)
    assert hits[-1] > hits[1] > 0


def test_salts_separate_equal_prompts_and_each_hits_its_own_blocks(headway: Headway) -> None:
    prompt = words(200, "salted")
    for salt in ("one", "two", None):
        body = {"prompt": prompt, "max_tokens": 2, **({"cache_salt": salt} if salt else {})}
        first, second = _twice(headway, COMPLETIONS, **body)
        assert (first.cached, second.cached >= 4 * BLOCK_TOKENS) == (0, True)


def test_predicted_hits_stay_exact_while_a_small_cache_evicts(headway: Headway) -> None:
    prompts = [words(500, f"evicted {number}") for number in range(14)]
    wanted = random.Random(17).choices(prompts, k=40)
    removed = headway.metric("headway_kv_events_total", type="BlockRemoved")
    answers = [headway.ask(COMPLETIONS, prompt=prompt, max_tokens=2) for prompt in wanted]
    assert [answer.predicted for answer in answers] == [answer.cached for answer in answers]
    assert sum(answer.cached > 0 for answer in answers) > 0
    assert headway.metric("headway_kv_events_total", type="BlockRemoved") > removed
