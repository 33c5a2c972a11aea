"""Prompts of responses, messages and text pairs become what engines make of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.requests.formats.messages_prompt import messages_prompt
from gateway.requests.formats.prompt import UnmatchedPrompt
from gateway.requests.formats.rerank_prompt import rerank_prompt
from gateway.requests.formats.responses_prompt import responses_chat, responses_prompt
from gateway.server.http.json_body import BadBodyError

WORDS = ("type", "role", "content", "text", "input", "tool_use", "tool_result", "function_call", "message", "reasoning")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.sampled_from(WORDS),
    lambda item: st.lists(item, max_size=3) | st.dictionaries(st.sampled_from(WORDS), item, max_size=4),
    max_leaves=12,
)
PARAMETERS = {"type": "object", "properties": {}}


def test_a_response_to_a_text_becomes_a_chat_of_instructions_and_user() -> None:
    prompt = responses_chat({"input": "hi", "instructions": "Be brief.", "chat_template_kwargs": {"x": 1}})
    assert prompt.messages == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    assert prompt.template == {"add_special_tokens": True, "chat_template_kwargs": {"x": 1}}


def test_items_of_one_assistant_turn_become_one_message() -> None:
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "weather?"}]},
        {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
        {"type": "function_call", "call_id": "d", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "rain"},
        {"role": "assistant", "content": "Rain."},
        {"type": "of_tomorrow"},
    ]
    calls = [{"id": name, "type": "function", "function": {"name": "look", "arguments": "{}"}} for name in ("c", "d")]
    assert responses_chat({"input": items}).messages == [
        {"role": "user", "content": [{"type": "text", "text": "weather?"}]},
        {"role": "assistant", "reasoning": "hm", "content": "I look.", "tool_calls": calls},
        {"role": "tool", "content": "rain", "tool_call_id": "c"},
        {"role": "assistant", "content": "Rain."},
    ]


def test_tools_of_a_response_become_those_of_a_chat() -> None:
    tools = [{"type": "function", "name": "look", "parameters": PARAMETERS}, {"type": "web_search"}]
    assert responses_chat({"input": "hi", "tools": tools}).template == {
        "add_special_tokens": True,
        "tools": [{"type": "function", "function": {"name": "look", "parameters": PARAMETERS}}],
    }
    assert responses_chat({"input": "hi", "tools": []}).template == {"add_special_tokens": True}


def test_messages_become_a_chat_with_tool_results_first_in_their_turn() -> None:
    body: dict[str, Any] = {
        "system": [{"type": "text", "text": "x-anthropic-billing-header: 1"}, {"type": "text", "text": "Be brief."}],
        "messages": [
            {"role": "user", "content": "weather?"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "tool_use", "id": "c", "name": "look", "input": {"at": "sea"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Well?"},
                    {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "rain"}]},
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "d", "content": "sun"}]},
            {"role": "system", "content": "Now."},
        ],
        "tools": [{"name": "look", "description": "Looks.", "input_schema": PARAMETERS}],
    }
    prompt = messages_prompt(body)
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"at":"sea"}'}}
    assert prompt.messages == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "reasoning": "hm", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "rain"},
        {"role": "user", "content": "Well?"},
        {"role": "tool", "tool_call_id": "d", "content": "sun"},
        {"role": "system", "content": "Now."},
    ]
    function = {"name": "look", "description": "Looks.", "parameters": PARAMETERS}
    assert prompt.template == {"tools": [{"type": "function", "function": function}]}


def test_images_in_messages_and_tool_results_are_opaque() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    result = {"type": "tool_result", "tool_use_id": "c", "content": [image]}
    content = [result, {"type": "text", "text": "And this?"}, image]
    prompt = messages_prompt({"messages": [{"role": "user", "content": content}]})
    assert [message["role"] for message in prompt.messages] == ["tool", "user", "user"]
    assert prompt.messages[1]["content"] == prompt.messages[2]["content"][1:]
    assert "AAAA" not in repr(prompt.messages)
    assert prompt.media_tokens > 0


@pytest.mark.parametrize("messages", [None, [], "x", [5]])
def test_malformed_messages_are_rejected(messages: Any) -> None:
    with pytest.raises(BadBodyError) as caught:
        messages_prompt({"messages": messages})
    assert caught.value.param == "messages"


@pytest.mark.parametrize(
    ("body", "longest", "others"),
    [
        ({"query": "qq", "documents": ["d", "ddd"]}, 5, 3),
        ({"text_1": "é", "text_2": "x"}, 3, 0),
        ({"text_1": ["a", "bb"], "text_2": ["ccc", "d"]}, 4, 3),
        ({"queries": "q", "documents": [{"text": "dd"}, {"content": [{"type": "text", "text": "d"}]}]}, 6, 3),
    ],
)
def test_each_text_pair_is_a_prompt(body: dict[str, Any], longest: int, others: int) -> None:
    assert rerank_prompt(body) == UnmatchedPrompt(longest, others)


@given(st.lists(st.dictionaries(st.sampled_from(WORDS), JSON, max_size=5), min_size=1, max_size=3), JSON)
def test_any_client_input_is_a_prompt_or_is_rejected(items: list[Any], other: Any) -> None:
    for body in (
        {"input": items, "instructions": other, "tools": other},
        {"messages": items, "system": other, "tools": other},
    ):
        read = responses_prompt if "input" in body else messages_prompt
        assert all(isinstance(message, dict) for message in read(body).messages)
    for pair in ({"query": other, "documents": items}, {"text_1": items, "text_2": other}):
        try:
            assert rerank_prompt(pair).text_bytes >= 0
        except BadBodyError as error:
            assert error.param
