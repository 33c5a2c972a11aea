"""Reads the prompt of OpenAI's `/v1/responses` as the chat that an engine makes of it (checked against vLLM 0.32)."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.requests.formats.prompt import ChatPrompt, UnmatchedPrompt, chat_of
from gateway.server.http.json_body import BadBodyError

_TEXTS = ("input_text", "output_text")
_CALLS = ("function_call", "custom_tool_call")
_RESULTS = ("function_call_output", "custom_tool_call_output")
_UNFINISHED = ("in_progress", "incomplete")
_WHOLE = "disabled"
_AS_IN_A_CHAT = ("chat_template_kwargs", "media_io_kwargs", "mm_processor_kwargs")
_EARLIER = ("previous_response_id", "previous_input_messages")
"""Fields whose content the engine inserts before the input."""


def responses_prompt(body: dict[str, Any]) -> ChatPrompt | UnmatchedPrompt:
    """Read `instructions`, `input` and `tools`; raise BadBodyError. Content stored by the engine is not visible."""
    chat = responses_chat(body)
    if all(body.get(name) is None for name in _EARLIER):
        return chat
    return UnmatchedPrompt(len(msgspec.json.encode(chat.messages)))


def responses_chat(body: dict[str, Any]) -> ChatPrompt:
    """Return the chat that an engine makes of a response without previous ones; raise BadBodyError."""
    messages: list[dict[str, Any]] = []
    instructions = body.get("instructions")
    if instructions and isinstance(instructions, str):
        messages.append({"role": "system", "content": instructions})
    asked = body.get("input")
    if isinstance(asked, str):
        messages.append({"role": "user", "content": asked})
    elif isinstance(asked, list) and asked and all(isinstance(item, dict) for item in asked):
        for item in asked:
            _append(messages, item)
    else:
        raise BadBodyError("bad_field", "Send input as a string or a non-empty list of objects.", param="input")
    return chat_of(messages, _chat_fields(body))


def _chat_fields(body: dict[str, Any]) -> dict[str, Any]:
    """Return the other inputs of the engine's tokens, under the field names of a chat, whose special tokens differ."""
    fields = {"add_special_tokens": True, **{name: body[name] for name in _AS_IN_A_CHAT if name in body}}
    if tools := _tools(body.get("tools")):
        fields["tools"] = tools
    reasoning = body.get("reasoning")
    if isinstance(reasoning, dict):
        fields["reasoning_effort"] = reasoning.get("effort")
    if _continues(body["input"]):
        fields |= {"add_generation_prompt": False, "continue_final_message": True}
    if body.get("truncation", _WHOLE) != _WHOLE:
        fields |= {"truncate_prompt_tokens": -1, "max_output_tokens": body.get("max_output_tokens")}
    return fields


def _continues(asked: object) -> bool:
    """Return whether the engine continues the last item, which is an unfinished assistant message."""
    last = asked[-1] if isinstance(asked, list) else {}
    return last.get("type", "message") in ("message", "reasoning") and last.get("status") in _UNFINISHED


def _append(messages: list[dict[str, Any]], item: dict[str, Any]) -> None:
    """Append an item. Calls and reasoning are added to the preceding assistant message."""
    kind, role = item.get("type", "message"), item.get("role")
    if kind in _CALLS:
        _assistant(messages).setdefault("tool_calls", []).append(_call(item))
    elif kind in _RESULTS:
        messages.append({"role": "tool", "content": item.get("output"), "tool_call_id": item.get("call_id")})
    elif kind == "reasoning":
        _fill(messages, "reasoning", _first_text(item.get("content")) or _first_text(item.get("summary")) or "")
    elif role == "assistant":
        content = item.get("content")
        _fill(messages, "content", content if isinstance(content, str) else _first_text(content) or "")
    elif isinstance(role, str):
        messages.append({"role": role, "content": _content(item.get("content"))})


def _assistant(messages: list[dict[str, Any]]) -> dict[str, Any]:
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant"})
    return messages[-1]


def _fill(messages: list[dict[str, Any]], name: str, text: str) -> None:
    message = _assistant(messages)
    if message.get(name) is not None:
        message = {"role": "assistant"}
        messages.append(message)
    message[name] = text


def _first_text(parts: object) -> str | None:
    first = parts[0] if isinstance(parts, list) and parts else None
    text = first.get("text") if isinstance(first, dict) else None
    return text if isinstance(text, str) else None


def _content(content: object) -> object:
    if not isinstance(content, list):
        return content
    return [
        {"type": "text", "text": part.get("text")} if isinstance(part, dict) and part.get("type") in _TEXTS else part
        for part in content
    ]


def _call(item: dict[str, Any]) -> dict[str, Any]:
    arguments = item.get("arguments")
    if arguments is None:
        arguments = msgspec.json.encode({"input": item.get("input") or ""}).decode()
    return {
        "id": item.get("call_id"),
        "type": "function",
        "function": {"name": item.get("name"), "arguments": arguments},
    }


def _tools(tools: object) -> list[dict[str, Any]]:
    return [
        {"type": "function", "function": {name: value for name, value in tool.items() if name != "type"}}
        for tool in (tools if isinstance(tools, list) else ())
        if isinstance(tool, dict) and tool.get("type") == "function"
    ]
