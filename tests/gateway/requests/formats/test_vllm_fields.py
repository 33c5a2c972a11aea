"""The gateway's reading of each vLLM field matches the field's effect on prompt tokens at each endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from gateway.api.route_request import prompt_of, read
from gateway.requests.formats.endpoints import BY_PATH, CHAT, COMPLETIONS
from gateway.requests.formats.messages_prompt import messages_prompt
from gateway.requests.formats.owned_fields import OWNED
from gateway.requests.formats.prompt import ChatPrompt, Prompt, TextPrompt, UnmatchedPrompt, chat_prompt
from gateway.requests.formats.responses_prompt import responses_chat, responses_prompt
from tests.gateway.requests.formats.vllm_fields import CASES, FIELDS, OTHER, SAME, UNKNOWN, bodies_of

DOORS = ("proxy", "a proxy's question", "a question")
OF_MEDIA = ("media_io_kwargs", "mm_processor_kwargs")
"""Fields without effect on a tokenizer where there are no media."""


async def _read(door: str, path: str, body: Mapping[str, Any]) -> Prompt:
    if door == "proxy":
        return BY_PATH[path].prompt(dict(body))
    endpoint = BY_PATH[path] if door == "a proxy's question" else None
    return prompt_of(await read(msgspec.json.encode({**body, "wait": False}), endpoint))


def _asked(prompt: Prompt) -> tuple[Any, ...]:
    """Return the question to an engine's tokenizer."""
    if isinstance(prompt, ChatPrompt):
        return prompt.messages, {name: value for name, value in prompt.template.items() if name not in OF_MEDIA}
    assert isinstance(prompt, TextPrompt)
    return prompt.text, prompt.special_tokens


def _is_unknown(prompt: Prompt) -> bool:
    return isinstance(prompt, UnmatchedPrompt) or getattr(prompt, "keeps", None) is not None


@pytest.mark.parametrize("door", DOORS)
async def test_the_tokenizer_question_matches_the_engines_prompt(door: str) -> None:
    for path, name in CASES:
        tokens = FIELDS[path][name].tokens
        without, with_it = [await _read(door, path, body) for body in bodies_of(path, name)]
        assert _is_unknown(with_it) == (tokens == UNKNOWN), (path, name)
        if tokens != UNKNOWN:
            assert (_asked(without) == _asked(with_it)) == (tokens == SAME), (path, name)


def test_every_kind_of_field_reading_has_an_example() -> None:
    assert {field.tokens for fields in FIELDS.values() for field in fields.values()} == {SAME, OTHER, UNKNOWN}
    assert set(FIELDS[CHAT]) & set(OWNED)


@pytest.mark.parametrize(
    ("fields", "kwargs"),
    [
        ({"reasoning_effort": "high"}, {"reasoning_effort": "high", "enable_thinking": True}),
        ({"reasoning_effort": "none"}, {"reasoning_effort": "none", "enable_thinking": False}),
        (
            {"reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": False, "reasoning_effort": "high"}},
            {"reasoning_effort": "low", "enable_thinking": False},
        ),
        ({"documents": [{"text": "t"}], "chat_template_kwargs": {"a": 1}}, {"documents": [{"text": "t"}], "a": 1}),
        ({"documents": None, "reasoning_effort": None, "chat_template_kwargs": {"a": 1}}, {"a": 1}),
        ({"reasoning_effort": "high", "chat_template_kwargs": "x"}, "x"),
    ],
)
def test_fields_that_become_template_variables_override_equal_names(fields: dict[str, Any], kwargs: Any) -> None:
    prompt = chat_prompt({"messages": [{"role": "user", "content": "hi"}], **fields})
    assert prompt.template == {"chat_template_kwargs": kwargs}


@pytest.mark.parametrize(
    ("fields", "template"),
    [
        (
            {"reasoning": {"effort": "high"}},
            {"chat_template_kwargs": {"reasoning_effort": "high", "enable_thinking": True}},
        ),
        ({"reasoning": {"summary": "auto"}, "text": {"format": {"type": "json_object"}}, "tool_choice": "none"}, {}),
        ({"chat_template": "x", "documents": [{"text": "x"}], "reasoning_effort": "high"}, {}),
        (
            {"input": [{"role": "assistant", "content": "The", "status": "incomplete", "type": "message"}]},
            {"add_generation_prompt": False, "continue_final_message": True},
        ),
    ],
)
def test_a_response_uses_only_its_own_template_variables(fields: dict[str, Any], template: Any) -> None:
    assert responses_chat({"input": "hi", **fields}).template == {"add_special_tokens": True, **template}


@pytest.mark.parametrize("name", ["previous_response_id", "previous_input_messages"])
def test_a_response_that_continues_a_stored_one_is_matched_with_no_cache(name: str) -> None:
    prompt = responses_prompt({"input": "x" * 400, name: "resp_1"})
    assert isinstance(prompt, UnmatchedPrompt)
    assert prompt.text_bytes > 400
    assert isinstance(responses_prompt({"input": "hi", name: None}), ChatPrompt)


@pytest.mark.parametrize(
    ("fields", "keeps"),
    [({}, None), ({"truncation": "disabled"}, None), ({"truncation": "auto"}, -1), ({"truncation": None}, -1)],
)
def test_a_response_is_truncated_to_leave_room_for_its_output(fields: dict[str, Any], keeps: int | None) -> None:
    assert responses_chat({"input": "hi", **fields}).keeps == keeps
    longer = responses_chat({"input": "hi", "max_output_tokens": 9, **fields})
    assert longer.keeps == (None if keeps is None else keeps - 9)


@pytest.mark.parametrize(
    ("fields", "template"),
    [
        (
            {"output_config": {"effort": "low"}},
            {"chat_template_kwargs": {"reasoning_effort": "low", "enable_thinking": True}},
        ),
        ({"chat_template_kwargs": {"verbose": 1}}, {"chat_template_kwargs": {"verbose": 1}}),
        (
            {"thinking": {"type": "disabled"}, "output_config": {"effort": "low"}},
            {"chat_template_kwargs": {"reasoning_effort": "none", "enable_thinking": False}},
        ),
        ({"thinking": {"type": "enabled"}, "tool_choice": {"type": "any"}, "output_config": {}}, {}),
        ({"chat_template": "x", "documents": [{"text": "x"}], "reasoning_effort": "high"}, {}),
    ],
)
def test_messages_use_only_their_own_template_variables(fields: dict[str, Any], template: Any) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, **fields}
    assert messages_prompt(body).template == template


def test_prompt_embeddings_count_as_work_and_are_never_too_long() -> None:
    read = BY_PATH[COMPLETIONS].prompt
    assert read({"prompt_embeds": "A" * 81_920}) == UnmatchedPrompt(0, 40)
    assert read({"prompt_embeds": ["A" * 81_920, "A"], "prompt": "x" * 8}) == UnmatchedPrompt(0, 52)
    assert read({"prompt_embeds": "A", "prompt": [1, 2]}) == UnmatchedPrompt(0, 12)
    assert read({"prompt_embeds": None, "prompt": "x"}) == TextPrompt("x")
