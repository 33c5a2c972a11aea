"""Every vLLM chat and completion field: a valid value, and its effect on the prompt's tokens.

`tests/vllm/test_token_parity.py` compares the table with the OpenAPI document and the tokens of a real engine, and
`test_vllm_fields.py` with what the gateway reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from gateway.requests.formats.endpoints import CHAT, COMPLETIONS

SAME, OTHER, UNKNOWN = "same tokens", "other tokens", "unknown tokens"
"""The prompt has the tokens of one without the field; it has others, which the gateway names too; or it has others that
only the engine knows, so that the prompt is searched in no cache.
"""
TEXT = "The gateway asks an engine for the tokens of a prompt, and the router looks for them in each engine's cache."
BODIES: Mapping[str, Mapping[str, Any]] = {
    CHAT: {"messages": [{"role": "system", "content": TEXT}, {"role": "user", "content": f"{TEXT} Which one?"}]},
    COMPLETIONS: {"prompt": f"{TEXT} {TEXT}"},
}
TEMPLATE = (
    "<s>{% if reasoning_effort %}<|turn|>effort {{ reasoning_effort }}</s>{% endif %}"
    "{% if enable_thinking is defined %}<|turn|>thinking {{ enable_thinking }}</s>{% endif %}"
    "{% if verbose %}<|turn|>verbose {{ verbose }}</s>{% endif %}"
    "{% for each in documents or [] %}<|turn|>{{ each.title }}\n{{ each.text }}</s>{% endfor %}"
    "{% if tools %}<|turn|>tools\n{{ tools | tojson }}</s>{% endif %}"
    "{% for message in messages %}<|turn|>{{ message.role }}\n"
    "{% if message.reasoning %}<|turn|>{{ message.reasoning }}</s>{% endif %}{{ message.content or '' }}"
    "{% for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}</s>"
    "{% endfor %}{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)
"""A chat template that reads all that vLLM gives to one."""
TOOL = {
    "type": "function",
    "function": {"name": "drain", "parameters": {"type": "object", "properties": {"engine": {"type": "string"}}}},
}
EMBEDS = "AAAA" * 10_000
"""Not what an engine reads as embeddings, which are a stored tensor; the gateway reads their length alone."""
_SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
_ANSWERED = [*BODIES[CHAT]["messages"], {"role": "assistant", "content": "The third"}]


class Field(NamedTuple):
    """The effect of one field value in vLLM."""

    value: Any
    tokens: str = SAME
    beside: Mapping[str, Any] = {}
    """Fields that the value needs or is compared with, in both requests."""


_BOTH: Mapping[str, Field] = {
    "model": Field("tiny"),
    "frequency_penalty": Field(0.5),
    "logit_bias": Field({"7": 1.0}),
    "max_tokens": Field(2),
    "n": Field(2, SAME, {"temperature": 1.0}),
    "presence_penalty": Field(0.5),
    "response_format": Field({"type": "json_object"}),
    "seed": Field(7),
    "stop": Field(["x"]),
    "stream": Field(True),
    "stream_options": Field({"include_usage": True}, SAME, {"stream": True}),
    "temperature": Field(0.5),
    "top_p": Field(0.9),
    "user": Field("someone"),
    "use_beam_search": Field(False),
    "top_k": Field(5),
    "min_p": Field(0.1),
    "repetition_penalty": Field(1.1),
    "length_penalty": Field(1.2),
    "stop_token_ids": Field([9]),
    "include_stop_str_in_output": Field(True),
    "ignore_eos": Field(True),
    "min_tokens": Field(1),
    "skip_special_tokens": Field(False),
    "spaces_between_special_tokens": Field(False),
    "truncate_prompt_tokens": Field(9, UNKNOWN),
    "truncation_side": Field("left", UNKNOWN, {"truncate_prompt_tokens": 9}),
    "prompt_logprobs": Field(1),
    "allowed_token_ids": Field([5, 6, 7]),
    "bad_words": Field(["gateway"]),
    "structured_outputs": Field({"json": _SCHEMA}),
    "priority": Field(0),
    "request_id": Field("mine"),
    "session_id": Field("mine"),
    "return_tokens_as_token_ids": Field(True),
    "return_token_ids": Field(True),
    "cache_salt": Field("mine"),
    "kv_transfer_params": Field({}),
    "ec_transfer_params": Field({}),
    "vllm_xargs": Field({"mine": 1}),
    "repetition_detection": Field({"max_pattern_size": 5, "min_count": 3}),
    "thinking_token_budget": Field(-1),
    "watermarking": Field(False),
    "logprob_token_ids": Field([5, 6], SAME, {"logprobs": True}),
    "routed_experts_prompt_start": Field(1),
    "return_token_offsets": Field(True),
    "return_mm_kwargs": Field(False),
    "mm_payload": Field("none"),
    "stream_interval": Field(2, SAME, {"stream": True}),
}
_OF_CHATS: Mapping[str, Field] = {
    "messages": Field(_ANSWERED, OTHER),
    "logprobs": Field(True),
    "top_logprobs": Field(1, SAME, {"logprobs": True}),
    "max_completion_tokens": Field(2),
    "tools": Field([TOOL], OTHER),
    "tool_choice": Field("none", SAME, {"tools": [TOOL]}),
    "reasoning_effort": Field("high", OTHER),
    "include_reasoning": Field(False),
    "return_prompt_text": Field(True),
    "parallel_tool_calls": Field(False, SAME, {"tools": [TOOL]}),
    "echo": Field(True),
    "add_generation_prompt": Field(False, OTHER),
    "continue_final_message": Field(True, OTHER, {"messages": _ANSWERED, "add_generation_prompt": False}),
    "add_special_tokens": Field(True, OTHER),
    "documents": Field([{"title": "Routing", "text": TEXT}], OTHER),
    "chat_template": Field("{{ messages[-1].content }}", OTHER),
    "chat_template_kwargs": Field({"verbose": "very"}, OTHER),
    "media_io_kwargs": Field({"video": {"num_frames": 4}}),
    "mm_processor_kwargs": Field({}),
}
_OF_COMPLETIONS: Mapping[str, Field] = {
    "prompt": Field(f"Why? {TEXT} {TEXT}", OTHER),
    "echo": Field(True),
    "logprobs": Field(1),
    "suffix": Field(None),
    "prompt_embeds": Field(EMBEDS, UNKNOWN),
    "add_special_tokens": Field(False, OTHER),
}
FIELDS: Mapping[str, Mapping[str, Field]] = {CHAT: {**_BOTH, **_OF_CHATS}, COMPLETIONS: {**_BOTH, **_OF_COMPLETIONS}}
CASES = [(path, name) for path, fields in FIELDS.items() for name in fields]


def bodies_of(path: str, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a body without the field and an otherwise equal one with it."""
    field = FIELDS[path][name]
    without = {"model": "tiny", **BODIES[path], **field.beside}
    return without, {**without, name: field.value}
