"""Chats with media: their messages, and predicted and actual hits."""

from __future__ import annotations

from typing import Any

from tests.gateway.served_gateway import CHAT, KEY, MODEL, ServedGateway


def user(*parts: str | dict[str, Any]) -> dict[str, Any]:
    """Return a message of texts and media."""
    return {"role": "user", "content": [{"type": "text", "text": p} if isinstance(p, str) else p for p in parts]}


async def ask(gateway: ServedGateway, messages: list[Any], key: str = KEY) -> tuple[str, int, int, int]:
    """Return the engine, the predicted and the reported cached tokens, and the prompt's length."""
    body = {"model": MODEL, "messages": messages, "max_tokens": 1}
    status, answer, headers = await gateway.post(CHAT, body, key=key)
    assert status == 200, answer
    record = gateway.app.recent.get(headers["x-headway-decision"])
    assert record is not None
    assert record.cached_tokens is not None
    decision = record.decision
    return decision.engine_id, decision.hit_tokens, record.cached_tokens, answer["usage"]["prompt_tokens"]
