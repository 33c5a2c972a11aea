"""Converts the prompts of `/v1/responses` and `/v1/messages` to chats, as vLLM does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from simulator.engine_server.api_error import EngineApiError
from simulator.engine_server.request_bodies import ChatMessage, CountTokensBody, MessagesBody, ResponsesBody


def responses_chat(body: ResponsesBody) -> list[ChatMessage]:
    """Return the chat in a body of `/v1/responses`; raise EngineApiError 400 for an unknown item."""
    messages = [ChatMessage("system", body.instructions)] if body.instructions else []
    if isinstance(body.input, str):
        return [*messages, ChatMessage("user", body.input)]
    for item in body.input:
        kind = item.get("type", "message")
        if kind == "function_call":
            if not messages or messages[-1].role != "assistant":
                messages.append(ChatMessage("assistant"))
        elif kind == "function_call_output":
            messages.append(ChatMessage("tool", str(item.get("output", ""))))
        elif "role" in item:
            messages.append(ChatMessage(str(item["role"]), _text(item.get("content"), "input")))
        else:
            raise EngineApiError(400, f"Unsupported input item type: {str(kind)[:40]}", "input")
    return messages


def messages_chat(body: MessagesBody | CountTokensBody) -> list[ChatMessage]:
    """Return the chat in a body of `/v1/messages`; raise EngineApiError 400 for an unreadable block."""
    messages = [ChatMessage("system", _text(body.system, "system"))] if body.system else []
    for message in body.messages:
        content = message.content
        if isinstance(content, list):
            results = [block for block in content if block.get("type") == "tool_result"]
            messages.extend(ChatMessage("tool", _text(block.get("content"), "messages", "\n")) for block in results)
            content = [block for block in content if block.get("type") not in {"tool_result", "tool_use"}]
            if not content and message.role == "user":
                continue
        messages.append(ChatMessage(message.role, _text(content, "messages")))
    return messages


def _text(content: Any, param: str, between: str = "") -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return between.join(_texts(content, param))


def _texts(parts: Iterable[Any], param: str) -> Iterable[str]:
    for part in parts:
        text = part.get("text") if isinstance(part, dict) else None
        if not isinstance(text, str):
            raise EngineApiError(400, "a content part is not text; this model reads text only", param)
        yield text
