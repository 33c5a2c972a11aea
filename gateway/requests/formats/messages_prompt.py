"""Reads the prompt of Anthropic's `/v1/messages` as the chat that an engine makes of it (checked against vLLM 0.32)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from gateway.requests.formats.prompt import ChatPrompt, chat_of
from gateway.server.http.json_body import BadBodyError

_PARTS = ("text", "image")
_BILLING = "x-anthropic-billing-header"
"""Prefix of a system block that differs in each request. Engines therefore omit it from the prompt."""


def messages_prompt(body: dict[str, Any]) -> ChatPrompt:
    """Read `system`, `messages` and `tools`; raise BadBodyError."""
    asked = body.get("messages")
    if not isinstance(asked, list) or not asked or not all(isinstance(item, dict) for item in asked):
        raise BadBodyError("bad_field", "Send messages as a non-empty list of objects.", param="messages")
    messages: list[dict[str, Any]] = []
    if system := _system(body.get("system")):
        messages.append({"role": "system", "content": system})
    for message in asked:
        messages.extend(_chat(message))
    return chat_of(messages, _chat_fields(body))


def _chat_fields(body: dict[str, Any]) -> dict[str, Any]:
    """Return the template's other inputs under the field names of a chat."""
    fields = {name: body[name] for name in ("chat_template_kwargs",) if name in body}
    if tools := _tools(body.get("tools")):
        fields["tools"] = tools
    config = body.get("output_config")
    if isinstance(config, dict):
        fields["reasoning_effort"] = config.get("effort")
    thinking = body.get("thinking")
    if isinstance(thinking, dict) and thinking.get("type") == "disabled":
        # An engine whose template ignores this renders a low effort instead; that is its own finding.
        fields["reasoning_effort"] = "none"
    return fields


def _system(system: object) -> str:
    if isinstance(system, str):
        return system
    texts = [block["text"] for block in _blocks(system) if block.get("type") == "text" and _is_text(block.get("text"))]
    return "".join(text for text in texts if not text.startswith(_BILLING))


def _chat(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the chat messages of one message. Tool results precede its other content."""
    role, content = message.get("role"), message.get("content")
    if role == "system":
        if text := _system(content):
            yield {"role": role, "content": text}
        return
    if not isinstance(content, list):
        yield {"role": role, "content": content}
        return
    blocks = list(_blocks(content))
    if role == "user":
        for block in blocks:
            if block.get("type") == "tool_result":
                yield from _result(block)
    made = {"role": role, **_fields_of(blocks)}
    if "content" in made or role != "user":
        yield made


def _fields_of(blocks: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the other fields of a message with these blocks."""
    fields: dict[str, Any] = {}
    if thoughts := [block["thinking"] for block in blocks if _is_text(block.get("thinking"))]:
        fields["reasoning"] = "".join(thoughts)
    if calls := [_call(block) for block in blocks if block.get("type") == "tool_use"]:
        fields["tool_calls"] = calls
    parts = [block for block in blocks if block.get("type") in _PARTS]
    if len(parts) == 1 and parts[0]["type"] == "text":
        fields["content"] = parts[0].get("text")
    elif parts:
        fields["content"] = [_part(block) for block in parts]
    return fields


def _part(block: dict[str, Any]) -> dict[str, Any]:
    return {"type": "text", "text": block.get("text")} if block["type"] == "text" else block


def _call(block: dict[str, Any]) -> dict[str, Any]:
    arguments = msgspec.json.encode(block.get("input") or {}).decode()
    function = {"name": block.get("name") or "", "arguments": arguments}
    return {"id": block.get("id") or "", "type": "function", "function": function}


def _result(block: dict[str, Any]) -> Iterator[dict[str, Any]]:
    content = block.get("content")
    text = content if isinstance(content, str) else ""
    parts = list(_blocks(content))
    if parts:
        text = "\n".join(part["text"] for part in parts if part.get("type") == "text" and _is_text(part.get("text")))
    yield {"role": "tool", "tool_call_id": block.get("tool_use_id") or "", "content": text}
    if images := [part for part in parts if part.get("type") == "image"]:
        yield {"role": "user", "content": images}


def _tools(tools: object) -> list[dict[str, Any]]:
    functions = []
    for tool in _blocks(tools):
        function = {
            "name": tool.get("name"),
            "description": tool.get("description"),
            "parameters": tool.get("input_schema"),
        }
        if tool.get("strict") is not None:
            function["strict"] = tool["strict"]
        functions.append({"type": "function", "function": function})
    return functions


def _blocks(value: object) -> Iterator[dict[str, Any]]:
    return (item for item in value if isinstance(item, dict)) if isinstance(value, list) else iter(())


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""
